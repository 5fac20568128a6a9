"""What controllers remember of objects that are gone: next to nothing, however many there were."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from msgspec import ValidationError

from katib.engine.controllers.cached_trial import TrialDecoder
from katib.engine.controllers.freshness import Freshness
from katib.engine.runtime.objects import Object
from katib.model.job_kinds import retry_words
from katib.model.names import QUEUE_LABEL
from katib.model.types import ObjectMeta, Trial
from tests.support.golden import Golden
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


def a_large_trial(number: int, *conditions: str) -> Object:
    variables = [{"name": f"VARIABLE_{i}", "value": f"value {i} of {number}"} for i in range(300)]
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"env": variables}}
    made = trial(f"demo-{number}", *conditions, value="0.5", run_spec=job).encode()
    return {**made, "metadata": {**made["metadata"], "uid": f"uid-{number}", "resourceVersion": str(number)}}


def kept_by_each(decode: TrialDecoder, *conditions: str) -> float:
    """Return how many bytes each of a hundred trials holds, of 20 KB each."""
    texts = [json.dumps(a_large_trial(number, *conditions)) for number in range(110)]
    kept = [decode(json.loads(text)) for text in texts[:10]]
    tracemalloc.start()
    kept += [decode(json.loads(text)) for text in texts[10:]]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size / 100


def test_a_trial_that_runs_does_not_keep_its_job_in_memory() -> None:
    assert kept_by_each(TrialDecoder(), "Created", "Running") < 12_000


def test_a_trial_that_has_ended_is_packed_into_little_more_than_its_values() -> None:
    decoder = TrialDecoder()
    texts = [json.dumps(a_large_trial(number, "Created", "Running", "Succeeded")) for number in range(110)]
    kept = [decoder.pack(obj, decoder(obj)) for obj in map(json.loads, texts[:10])]
    tracemalloc.start()
    kept += [decoder.pack(obj, decoder(obj)) for obj in map(json.loads, texts[10:])]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size / 100 < 600


def test_a_trial_that_has_not_ended_is_not_packed() -> None:
    decoder = TrialDecoder()
    running = a_large_trial(1, "Created", "Running")

    assert decoder.pack(running, decoder(running)) is None


def test_a_trial_that_waits_keeps_its_job_to_create_it() -> None:
    waiting = a_large_trial(1, "Created")

    assert TrialDecoder()(waiting).spec.run_spec == waiting["spec"]["runSpec"]


def test_a_trial_that_the_store_has_decoded_is_shared_only_while_it_waits() -> None:
    for conditions, is_shared in ((("Created",), True), (("Created", "Running"), False)):
        struct = Trial.decode(a_large_trial(1, *conditions))

        assert (TrialDecoder().adopt(struct) is struct) is is_shared


def test_a_malformed_trial_is_refused() -> None:
    with pytest.raises(ValidationError):
        TrialDecoder()({**a_large_trial(1), "spec": {"retainRun": "perhaps"}, "status": {}})


def test_the_queue_of_a_job_that_runs_is_kept_for_when_it_is_preempted() -> None:
    running = a_large_trial(1, "Created", "Running")
    running["spec"]["runSpec"]["metadata"] = {"labels": {QUEUE_LABEL: "team-a", "more": "text"}}

    assert TrialDecoder()(running).spec.run_spec == {
        **{key: running["spec"]["runSpec"][key] for key in ("apiVersion", "kind")},
        "metadata": {"labels": {QUEUE_LABEL: "team-a"}},
    }


def test_the_tries_of_a_job_that_runs_are_kept_to_be_counted(golden: Golden) -> None:
    running = a_large_trial(1, "Created", "Running")
    job = running["spec"]["runSpec"] = {**running["spec"]["runSpec"], "spec": {"backoffLimit": 2, "template": {}}}
    kept = TrialDecoder()(running).spec.run_spec

    assert kept == {**{key: job[key] for key in ("apiVersion", "kind")}, "spec": {"backoffLimit": 2}}
    golden(retry_words({"status": {"failed": 1}}, kept, "ended with exit code 1"))


def test_what_is_left_out_and_shared_changes_nothing_else() -> None:
    decode = TrialDecoder()
    for number in range(3):
        raw = a_large_trial(number, "Created", "Running", "Succeeded")
        expected = Trial.decode({**raw, "spec": {**raw["spec"], "runSpec": {"apiVersion": "batch/v1", "kind": "Job"}}})

        packed = decode.pack(raw, decode(raw))

        assert packed is not None
        assert packed() == decode(raw) == expected
        assert packed().encode() == decode(raw).encode() == expected.encode()


@pytest.mark.parametrize("conditions", [(), ("Created", "Running"), ("Created", "Running", "Succeeded")])
def test_a_trial_that_the_store_has_decoded_is_kept_as_one_that_was_read(conditions: tuple[str, ...]) -> None:
    raw = a_large_trial(1, *conditions)
    struct = Trial.decode(raw)

    assert TrialDecoder().adopt(struct) == TrialDecoder()(raw)
    assert struct == Trial.decode(raw)
