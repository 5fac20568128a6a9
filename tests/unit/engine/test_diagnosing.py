"""What is gathered before something is explained; the explanations have their own tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from katib.api.metrics import ZERO_TIME, MetricLog
from katib.controllers.kinds import TRIAL
from katib.database import Database, open_database
from katib.diagnosis import JobFacts, ServiceFacts
from katib.engine.diagnosing import Diagnostician
from katib.engine.layout import Layout
from katib.engine.trial_files import TrialFiles
from katib.errors import NotFoundError
from katib.observations.memory import MemoryObservationLog
from katib.runtime.objects import Key
from katib.runtime.testing import VirtualClock
from katib.stores.events import EventLog
from tests.support.controllers import JOB, new_store
from tests.support.tuning import condition, make_experiment, make_trial


class Bench:
    """A diagnostician over stores in memory; `known` is what a runner says of every job."""

    def __init__(
        self, database: Database, known: JobFacts | None = None, services: tuple[ServiceFacts, ...] = ()
    ) -> None:
        self.store = new_store()
        self.log = MemoryObservationLog()
        self.files = TrialFiles(Layout(database.path.parent))
        clock = VirtualClock()
        self.asked: list[str] = []
        self.diagnostician = Diagnostician(
            store=self.store,
            observations=self.log,
            events=EventLog(database, clock),
            files=self.files,
            clock=clock,
            job_state=None if known is None else lambda job: self._asked(job, known),
            service_state=lambda _namespace, _name: services,
        )

    def _asked(self, job: Any, known: JobFacts) -> JobFacts:
        self.asked.append(job["metadata"]["name"])
        return known

    def put(self, *objects: dict[str, Any]) -> None:
        for obj in objects:
            stored = self.store.create({k: v for k, v in obj.items() if k != "status"})
            if "status" in obj:
                self.store.update_status({**stored, "status": obj["status"]})

    def told(self, name: str) -> str:
        return str(self.diagnostician.explain("default", name))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(tmp_path / "katib.db") as opened:
        yield opened


@pytest.fixture
def bench(database: Database) -> Bench:
    return Bench(database)


def running(name: str, **more: Any) -> dict[str, Any]:
    made = make_trial(name, condition("Created"), condition("Running"), **more)
    run_spec = {"apiVersion": "batch/v1", "kind": "Job"}
    return {**made, "spec": {**made["spec"], "primaryContainerName": "main", "runSpec": run_spec}}


def a_job(name: str) -> dict[str, Any]:
    return {"apiVersion": JOB.api_version, "kind": JOB.kind, "metadata": {"name": name, "namespace": "default"}}


def test_what_is_neither_is_not_found(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match='neither an experiment nor a trial "ghost"'):
        bench.told("ghost")


def test_an_experiment_counts_before_a_trial_of_that_name(bench: Bench) -> None:
    bench.put(make_experiment("demo", condition("Created")), running("demo"))

    assert bench.diagnostician.explain("default", "demo").kind == "Experiment"


def test_what_the_runner_waits_for_is_told(database: Database) -> None:
    bench = Bench(database, JobFacts(waiting="waits for 2 cpu; 0 of 2 cpu are free"))
    bench.put(make_experiment("demo", condition("Created"), condition("Running")), running("demo-1"), a_job("demo-1"))

    assert "waits for 2 cpu; 0 of 2 cpu are free" in bench.told("demo-1")
    assert bench.asked == ["demo-1"]


def test_a_service_that_fails_is_told(database: Database) -> None:
    bench = Bench(database, services=(ServiceFacts("random", "failing", 3, "no module named numpy"),))
    bench.put(make_experiment("demo", condition("Created")))

    assert "no module named numpy" in bench.told("demo")


def test_the_last_words_of_a_failed_trial_are_told(bench: Bench) -> None:
    failed = running("demo-1")
    failed["status"]["conditions"].append(condition("Failed", "TrialFailed", "Trial has failed"))
    bench.put(make_experiment("demo", condition("Created"), condition("Running")), failed)
    log = bench.files.directory(Key("default", "demo-1")) / "pod" / "main.log"
    log.parent.mkdir(parents=True)
    log.write_text("ValueError: no data\n")

    assert "ValueError: no data" in bench.told("demo-1")


def test_the_readings_of_a_running_trial_are_counted_over_all_pages(bench: Bench) -> None:
    bench.put(make_experiment("demo", condition("Created"), condition("Running")), running("demo-1"))
    bench.log.report("demo-1", [MetricLog(ZERO_TIME, "loss", str(i)) for i in range(70_000)])
    newest, count = bench.diagnostician._newest(dict(bench.store.get(TRIAL, Key("default", "demo-1"))))

    assert count == 70_000
    assert newest is not None
    assert newest.value == "69999"
