"""What is gathered before something is explained; the explanations have their own tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from katib.engine.databases.sqlite import Database, open_database
from katib.engine.runtime.objects import Key, ObjectStore
from katib.engine.stores.events import EventLog
from katib.errors import NotFoundError, UnavailableError
from katib.model.metrics import ZERO_TIME, MetricLog
from katib.model.types import Experiment, Trial
from katib.places.machine.events import LoggedEvents
from katib.places.machine.layout import Layout
from katib.places.machine.trials.facts import LocalFacts
from katib.places.machine.trials.output import TrialOutput
from katib.service.explaining.diagnostician import Diagnostician, attempt_of
from katib.service.explaining.evidence import LOCAL, ServiceFacts
from katib.service.tuning.ports import Records
from tests.support.clock import VirtualClock
from tests.support.controllers import JOB, new_store
from tests.support.golden import Golden
from tests.support.observations import Fault, FaultyLog, MemoryObservationLog
from tests.support.tuning import condition, make_experiment, make_trial, patched

Services = tuple[ServiceFacts, ...]


class Waiting(LocalFacts):
    """What an engine says: one thing of every job, and the same services of every experiment."""

    def __init__(self, store: ObjectStore, files: TrialOutput, layout: Layout, reason: str, known: Services) -> None:
        super().__init__(store, files, layout)
        self.asked: list[str] = []
        self._reason = reason
        self._known = known

    def waiting(self, job: Key) -> str:
        self.asked.append(job.name)
        return self._reason

    def services(self, _asked: object) -> Services:
        return self._known

    def is_at_work(self) -> bool:
        return True


class OnACluster(Waiting):
    """The same where other controllers may work on OptimizationJobs, too."""

    place = replace(LOCAL, needs_annotation=True)


class Bench:
    """A diagnostician of one machine over stores in memory; `waiting` is what a runner says of every job."""

    def __init__(
        self,
        database: Database,
        waiting: str = "",
        services: Services = (),
        log: MemoryObservationLog | None = None,
        *,
        on_a_cluster: bool = False,
    ) -> None:
        self.store = new_store()
        self.log = log or MemoryObservationLog()
        layout = Layout(database.path.parent)
        self.files = TrialOutput(layout)
        clock = VirtualClock()
        records = Records(self.store, self.log, LoggedEvents(EventLog(database, clock)), lambda: self.files)
        facts = (OnACluster if on_a_cluster else Waiting)(self.store, self.files, layout, waiting, services)
        self.asked = facts.asked
        self.diagnostician = Diagnostician(records, facts, clock)

    def put(self, *objects: Experiment | Trial | dict[str, Any]) -> None:
        for made in objects:
            obj = made if isinstance(made, dict) else made.encode()
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


def running(name: str, **more: Any) -> Trial:
    made = make_trial(name, condition("Created"), condition("Running"), **more)
    run_spec = {"apiVersion": "batch/v1", "kind": "Job"}
    return patched(made, spec={"primaryContainerName": "main", "runSpec": run_spec})


def a_job(name: str) -> dict[str, Any]:
    return {"apiVersion": JOB.api_version, "kind": JOB.kind, "metadata": {"name": name, "namespace": "default"}}


def an_optimization_job(name: str) -> dict[str, Any]:
    return {**a_job(name), "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "OptimizationJob", "spec": {}}


ANNOTATE = "`kubectl annotate optimizationjob oj --namespace default katib.kubeflow.org/algorithm=random`"


def test_what_is_neither_is_not_found(bench: Bench, golden: Golden) -> None:
    with golden.raises(NotFoundError):
        bench.told("ghost")


@pytest.mark.parametrize(
    ("annotations", "on_a_cluster", "verdict", "remedy"),
    [
        ({}, True, "Nobody works on OptimizationJob oj: it has no annotation katib.kubeflow.org/algorithm.", ANNOTATE),
        ({"katib.kubeflow.org/algorithm": "tpe"}, True, "OptimizationJob oj has no experiment yet.", "If this lasts, "),
        ({}, False, "OptimizationJob oj has no experiment yet.", ""),
    ],
    ids=["left to others", "ours", "one machine"],
)
def test_an_optimization_job_says_who_works_on_it(
    database: Database, annotations: dict[str, str], verdict: str, remedy: str, *, on_a_cluster: bool
) -> None:
    bench = Bench(database, on_a_cluster=on_a_cluster)
    job = an_optimization_job("oj")
    bench.put({**job, "metadata": {**job["metadata"], "annotations": annotations}})
    told = bench.diagnostician.explain("default", "oj")

    assert (told.kind, told.verdict) == ("OptimizationJob", verdict)
    assert " ".join(told.remedies).startswith(remedy)
    assert bool(told.remedies) is bool(remedy)


def test_an_optimization_job_that_made_no_experiment_tells_its_condition(bench: Bench, golden: Golden) -> None:
    failed = {"type": "Failed", "status": "True", "reason": "TrainJobsCreationFailed", "message": "The job is invalid"}
    bench.put({**an_optimization_job("oj"), "status": {"conditions": [failed]}})

    golden(bench.diagnostician.explain("default", "oj").verdict)


def test_an_experiment_counts_before_a_trial_of_that_name(bench: Bench) -> None:
    bench.put(make_experiment("demo", condition("Created")), running("demo"))

    assert bench.diagnostician.explain("default", "demo").kind == "Experiment"


def test_what_the_runner_waits_for_is_told(database: Database, golden: Golden) -> None:
    bench = Bench(database, waiting="waits for 2 cpu; 0 of 2 cpu are free")
    bench.put(make_experiment("demo", condition("Created"), condition("Running")), running("demo-1"), a_job("demo-1"))

    golden(bench.diagnostician.explain("default", "demo-1").verdict)
    assert bench.asked == ["demo-1"]


def test_a_service_that_fails_is_told(database: Database) -> None:
    bench = Bench(database, services=(ServiceFacts("random", "failing", 3, "no module named numpy"),))
    bench.put(make_experiment("demo", condition("Created")))

    assert "no module named numpy" in bench.told("demo")


def test_the_last_words_of_a_failed_trial_are_told(bench: Bench) -> None:
    conditions = [condition("Created"), condition("Running"), condition("Failed", "TrialFailed", "Trial has failed")]
    failed = patched(running("demo-1"), status={"conditions": conditions})
    bench.put(make_experiment("demo", condition("Created"), condition("Running")), failed)
    log = bench.files.directory(Key("default", "demo-1")) / "pod" / "main.log"
    log.parent.mkdir(parents=True)
    log.write_text("ValueError: no data\n")

    assert "ValueError: no data" in bench.told("demo-1")


def test_the_readings_of_a_running_trial_are_counted_over_all_pages(bench: Bench, golden: Golden) -> None:
    bench.put(make_experiment("demo", condition("Created"), condition("Running")), running("demo-1"))
    bench.log.report("demo-1", [MetricLog(ZERO_TIME, "loss", str(i)) for i in range(70_000)])

    golden(bench.diagnostician.explain("default", "demo-1").findings)


def test_metrics_that_cannot_be_read_do_not_fail_the_answer(database: Database, golden: Golden) -> None:
    log = FaultyLog()
    log.fault = Fault(UnavailableError("log of demo-1: no answer"))
    bench = Bench(database, log=log)
    bench.put(make_experiment("demo", condition("Created"), condition("Running")), running("demo-1"))

    golden(bench.diagnostician.explain("default", "demo-1").findings)


def test_the_tries_of_a_job_are_counted(bench: Bench, golden: Golden) -> None:
    bench.put(make_experiment("demo", condition("Created"), condition("Running")), running("demo-1"))
    bench.put({**a_job("demo-1"), "status": {"active": 1, "failed": 2}})

    golden(bench.diagnostician.explain("default", "demo-1").findings)


@pytest.mark.parametrize(
    ("job", "attempt"),
    [
        pytest.param({"status": {}}, 1, id="not started"),
        pytest.param({"status": {"active": 1}}, 1, id="first"),
        pytest.param({"status": {"failed": 2}}, 2, id="failed twice, none runs"),
        pytest.param({"status": {"active": 1, "failed": 2}}, 3, id="third"),
        pytest.param({"spec": {"parallelism": 4}, "status": {"active": 1, "failed": 2}}, 1, id="many pods"),
        pytest.param({"status": {"failed": "lots"}}, 1, id="no job of batch"),
    ],
)
def test_the_try_of_a_job_follows_from_its_status(job: dict[str, Any], attempt: int) -> None:
    assert attempt_of(job) == attempt
