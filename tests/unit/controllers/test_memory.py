"""What controllers remember of objects that are gone: next to nothing, however many there were."""

from __future__ import annotations

import tracemalloc

from katib.api.types import ObjectMeta, Trial
from katib.controllers.cached_trial import TrialDecoder
from katib.controllers.freshness import Freshness
from tests.support.planning import trial


def seen(number: int, version: str) -> Trial:
    return Trial(metadata=ObjectMeta(name="demo-1", uid=f"uid-{number}", resource_version=version))


def test_a_write_is_remembered_only_until_the_cache_shows_it() -> None:
    fresh = Freshness()
    tracemalloc.start()
    for number in range(10_000):
        fresh.wrote(seen(number, "1"), {"metadata": {"resourceVersion": "2"}})
        assert fresh.is_stale(seen(number, "1"))
        assert not fresh.is_stale(seen(number, "2"))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 300_000


def test_trials_of_experiments_long_gone_are_not_kept_for_sharing() -> None:
    decode = TrialDecoder()
    raw = trial("demo-1").encode()
    raw["spec"] = {**raw["spec"], "runSpec": {"apiVersion": "batch/v1", "kind": "Job"}}
    tracemalloc.start()
    kept = []
    for number in range(4000):
        owner = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "name": "e", "uid": f"uid-{number}"}
        decode({**raw, "metadata": {**raw["metadata"], "ownerReferences": [owner]}})
        if number in (999, 3999):
            kept.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()

    assert kept[1] < 2 * kept[0]
