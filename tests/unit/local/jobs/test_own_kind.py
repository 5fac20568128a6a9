"""The example of a kind in the documentation works as it stands there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from katib.engine.runtime.objects import Kind
from katib.places.machine.jobs.gang.spec import Success
from katib.places.machine.jobs.kind import PodStart
from katib.places.machine.jobs.networks import LocalWiring, PortTable
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.spec import TrainingSpec
from katib.places.machine.jobs.replicated.training_kind import Peers, Port

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "jobs.md"
NAMES = (Kind, Mapping, Peers, Port, ReplicatedJob, Success, TrainingSpec)


def test_a_kind_is_a_class_that_says_what_is_its_own() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {thing.__name__: thing for thing in NAMES}
    exec(source, names)  # our own page
    kind, wiring = names["RingJob"](), LocalWiring(PortTable())
    container = {"name": "member", "image": "none", "command": ["true"]}
    replicas = {"Member": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}
    job = {"metadata": {"name": "j", "namespace": "n"}, "spec": {"ringReplicaSpecs": replicas}}

    addresses = [kind.pod(job, PodStart(i, "member"), wiring).variables["member"]["NEXT_ADDRESS"] for i in (0, 1)]

    assert len(set(addresses)) == 2
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) for address in addresses)
