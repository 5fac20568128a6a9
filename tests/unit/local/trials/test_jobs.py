from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from katib.engine.controllers.kinds import key_of
from katib.engine.controllers.ports import PodUpdate
from katib.engine.runtime.objects import Key
from katib.model.types import Resource, Trial
from katib.places.machine.jobs.run import JobStanding
from katib.places.machine.layout import Layout
from katib.places.machine.pods.pulls import PullNews
from katib.places.machine.trials.files import TrialFiles
from katib.places.machine.trials.jobs import TrialJobs, TrialPods


class Events:
    def __init__(self) -> None:
        self.seen: list[tuple[bool, str, str]] = []

    def record(self, obj: Resource, *, warning: bool, reason: str, message: str) -> None:
        self.seen.append((warning, reason, message))


@dataclass
class Jobs:
    """What the controller of jobs answers."""

    known: JobStanding | None = None

    def standing(self, _key: Key) -> JobStanding | None:
        return self.known


TRIAL = Trial.decode({"metadata": {"name": "t", "namespace": "ns"}, "spec": {}})
JOB: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "t", "namespace": "ns"}}


def trial_jobs(trials: dict[Key, Trial], events: Events, woken: list[Key]) -> TrialJobs:
    layout, informer = Layout(Path()), cast(Any, trials)
    ignore = cast(Any, lambda *_: False)
    return TrialJobs(TrialFiles(layout), layout, informer, cast(Any, {}), events, woken.append, ignore, ignore)


@pytest.mark.parametrize(
    ("news", "event"),
    [
        (PullNews("train:1"), (False, "Pulling", 'Pulling image "train:1"')),
        (PullNews("train:1", 3.21), (False, "Pulled", 'Successfully pulled image "train:1" in 3.2s')),
        (PullNews("train:1", 250.0), (False, "Pulled", 'Successfully pulled image "train:1" in 4m10s')),
        (PullNews("train:1", 1.0, "no"), (True, "Failed", 'Failed to pull image "train:1": no')),
    ],
    ids=["begins", "seconds", "minutes", "fails"],
)
def test_events_have_the_words_of_a_kubelet_and_the_trial_is_looked_at_again(
    news: PullNews, event: tuple[bool, str, str]
) -> None:
    events, woken = Events(), list[Key]()

    trial_jobs({key_of(TRIAL): TRIAL}, events, woken).pulled(JOB, news)

    assert events.seen == [event]
    assert woken == [key_of(TRIAL)]


@pytest.mark.parametrize(
    ("standing", "update"),
    [
        (None, PodUpdate()),
        (JobStanding(runs=True), PodUpdate(is_trouble=False, runs=True)),
        (JobStanding(waiting="waits for 2 cpu"), PodUpdate(waiting="waits for 2 cpu", is_trouble=False, runs=False)),
    ],
    ids=["unknown", "runs", "waits"],
)
def test_a_trial_is_told_whether_its_job_runs_and_what_it_waits_for(
    standing: JobStanding | None, update: PodUpdate
) -> None:
    owner = trial_jobs({}, Events(), [])
    assert TrialPods(cast(Any, Jobs(standing)), owner).update_of(TRIAL) == update


def test_a_job_whose_trial_is_gone_has_no_events() -> None:
    events = Events()

    trial_jobs({}, events, []).pulled(JOB, PullNews("train:1"))

    assert events.seen == []
