"""What every home promises to those who evaluate trials themselves.

A home is one more entry in WORLDS: a context manager that yields a tuning service with controllers at work behind it.
"""

from __future__ import annotations

import json
import math
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any

import pytest

from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.errors import ForbiddenError, InvalidError, NotFoundError
from katib.model.leases import lease_of
from katib.model.types import Experiment, Trial
from katib.places.machine import open_engine
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import TrialForCaller, TuningService
from katib.service.tuning.states import is_completed, last_condition, objective_value, running_condition, state_of
from tests.support.asking import over_cluster, over_controllers
from tests.support.experiments import an_experiment
from tests.support.faulty_store import Call
from tests.support.refusals import refused
from tests.support.waiting import eventually

NS = "default"


@contextmanager
def controllers(_request: pytest.FixtureRequest) -> Iterator[TuningService]:
    with over_controllers() as service:
        yield service


@contextmanager
def plain_store(_request: pytest.FixtureRequest) -> Iterator[TuningService]:
    with over_controllers(plain=True) as service:
        yield service


@contextmanager
def cluster(_request: pytest.FixtureRequest) -> Iterator[TuningService]:
    with over_cluster() as service:
        yield service


@contextmanager
def engine(request: pytest.FixtureRequest) -> Iterator[TuningService]:
    directory = request.getfixturevalue("tmp_path_factory").mktemp("engine")
    with open_engine(data_dir=directory, own_process=False) as running:
        running.start()
        yield running.service


@contextmanager
def over_http(request: pytest.FixtureRequest) -> Iterator[TuningService]:
    with (
        engine(request) as service,
        Server(service, host="127.0.0.1", port=0, token="secret") as server,
        HttpTuningService(server.url, "secret") as client,
    ):
        yield client


WORLDS: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[TuningService]]] = {
    "controllers": controllers,
    "plain store": plain_store,
    "cluster": cluster,
    "engine": engine,
    "http": over_http,
}


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest) -> Iterator[Callable[[str], TuningService]]:
    """Each world once: its suggestion service takes longer to start than a test."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(WORLDS[name](request)))


@pytest.fixture(params=WORLDS)
def service(request: pytest.FixtureRequest, kept: Callable[[str], TuningService]) -> Iterator[TuningService]:
    """A service without experiments."""
    service = kept(request.param)
    yield service
    for experiment in service.experiments():
        service.delete(experiment.namespace, experiment.name)
    eventually(lambda: not service.experiments())


def submit(service: TuningService, *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
    """Submit the experiment `demo` without template: three trials, two at a time unless the spec says otherwise."""
    raw = an_experiment(trialTemplate=None, **spec)
    raw["metadata"]["annotations"] = annotations or {}
    service.submit(json.dumps(raw), source="demo.yaml")


def ask(service: TuningService, request_id: str = "", **options: Any) -> TrialForCaller:
    return service.ask(NS, "demo", request_id=request_id or uuid.uuid4().hex, wait_seconds=60, **options)


def asked(service: TuningService, request_id: str = "", **options: Any) -> Trial:
    """Return a trial that was given."""
    given = ask(service, request_id, **options).trial
    assert given is not None
    return given


def state(service: TuningService, trial: Trial) -> str:
    return state_of(service.get(Trial, NS, trial.name))


def reaches(service: TuningService, trial: Trial, wanted: str) -> None:
    eventually(lambda: state(service, trial) == wanted)


def ended(service: TuningService) -> Experiment:
    """Return the experiment once it is over."""
    eventually(lambda: is_completed(service.get(Experiment, NS, "demo")))
    return service.get(Experiment, NS, "demo")


def test_trials_are_asked_for_evaluated_and_told_until_the_budget_is_used_up(service: TuningService) -> None:
    submit(service, maxTrialCount=3)
    values = {}
    while (trial := ask(service).trial) is not None:
        values[trial.name] = float(assignments_of(trial)["lr"])
        service.tell(NS, trial.name, {"loss": values[trial.name]})
    experiment = ended(service)

    assert len(values) == 3
    assert experiment.status.trials_succeeded == 3
    assert last_condition(experiment).reason == "ExperimentMaxTrialsReached"
    best = service.best(NS, "demo")
    assert best is not None
    assert (best.name, float(objective_value(best) or "nan")) == min(values.items(), key=lambda pair: pair[1])


def test_a_trial_runs_from_when_it_is_given_and_has_no_job(service: TuningService) -> None:
    submit(service)
    trial = asked(service, client="alice")
    reaches(service, trial, "Running")

    stored = service.get(Trial, NS, trial.name)
    assert stored.spec.run_spec is None
    assert last_condition(stored).message == "Trial is running: alice evaluates it"
    assert not service.pods("Trial", NS, trial.name)


def test_no_trial_is_made_before_one_is_asked_for(service: TuningService) -> None:
    submit(service, algorithm={"algorithmName": "tpe"})
    reaches(service, asked(service), "Running")

    assert service.trials(NS, "demo").total == 1


def test_no_more_trials_are_out_than_the_parallelism_allows(service: TuningService) -> None:
    submit(service, maxTrialCount=9, parallelTrialCount=2)
    first, second = asked(service), asked(service)
    third = service.ask(NS, "demo", request_id="third", wait_seconds=0.5)

    assert first.name != second.name
    assert (third.trial, third.is_over) == (None, False)
    assert third.reason
    service.tell(NS, first.name, {"loss": 1})
    assert asked(service, "third").name not in (first.name, second.name)


def test_the_same_request_gets_the_same_trial(service: TuningService) -> None:
    submit(service)
    first, again, other = asked(service, "one"), asked(service, "one"), asked(service, "two")

    assert first.name == again.name != other.name


def test_telling_again_under_the_same_request_changes_nothing_and_under_another_is_refused(
    service: TuningService,
) -> None:
    submit(service)
    trial = asked(service)
    for _ in range(2):
        service.tell(NS, trial.name, {"loss": 0.5}, request_id="told")
    reaches(service, trial, "Succeeded")
    service.tell(NS, trial.name, {"loss": 0.5}, request_id="told")

    with refused("tell-twice"):
        service.tell(NS, trial.name, {"loss": 0.1}, request_id="other")
    assert len(service.metrics(NS, trial.name)) == 1
    assert objective_value(service.get(Trial, NS, trial.name)) == "0.5"


def test_readings_are_stored_once_for_each_request_and_make_a_curve(service: TuningService) -> None:
    submit(service)
    trial = asked(service)
    for step, loss in enumerate((0.9, 0.7)):
        for _ in range(2):
            service.report(NS, trial.name, {"loss": loss}, step=step, request_id=f"report-{step}")
    service.tell(NS, trial.name, {"loss": 0.8})
    reaches(service, trial, "Succeeded")

    assert [(one.value, one.step) for one in service.metrics(NS, trial.name)] == [("0.9", 0), ("0.7", 1), ("0.8", 1)]


@pytest.mark.parametrize(
    ("told", "wanted", "words"),
    [
        pytest.param({"failure": "out of\nmemory"}, "Failed", "Trial has failed: out of memory", id="failed"),
        pytest.param({"failure": ""}, "Failed", "Trial has failed: its caller says so", id="failed without a word"),
        pytest.param({"stopped": True}, "EarlyStopped", "Trial is early stopped", id="stopped"),
    ],
)
def test_a_trial_ends_as_its_caller_says(service: TuningService, told: dict[str, Any], wanted: str, words: str) -> None:
    submit(service)
    trial = asked(service)
    service.tell(NS, trial.name, {}, **told)
    reaches(service, trial, wanted)

    assert last_condition(service.get(Trial, NS, trial.name)).message == words


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_kept_and_never_the_best(service: TuningService, value: float) -> None:
    submit(service, maxTrialCount=2, parallelTrialCount=1)
    bad = asked(service)
    service.tell(NS, bad.name, {"loss": value})
    good = asked(service)
    service.tell(NS, good.name, {"loss": 5})
    ended(service)

    assert state(service, bad) == "Succeeded"
    best = service.best(NS, "demo")
    assert best is not None
    assert best.name == good.name


def test_what_is_wrong_with_a_request_is_said_at_once(service: TuningService) -> None:
    submit(service)
    trial = asked(service)
    for origin, call in {
        "tell-objective": lambda: service.tell(NS, trial.name, {}),
        "tell-twofold": lambda: service.tell(NS, trial.name, {}, failure="x", stopped=True),
        "report-value": lambda: service.report(NS, trial.name, {"loss": "low"}),
        "report-name": lambda: service.report(NS, trial.name, {"": 1.0}),
        "report-count": lambda: service.report(NS, trial.name, {}),
        "lease-seconds": lambda: ask(service, lease_seconds=0.0),
        "request-id": lambda: ask(service, "no/label"),
    }.items():
        with pytest.raises(InvalidError) as caught:
            call()
        assert {error.origin for error in caught.value.errors} == {origin}


def test_trials_that_are_not_there_are_not_found(service: TuningService) -> None:
    submit(service)
    calls: tuple[Callable[[], object], ...] = (
        lambda: service.ask(NS, "ghost", request_id="one"),
        lambda: service.report(NS, "ghost", {"loss": 1}),
        lambda: service.tell(NS, "ghost", {"loss": 1}),
        lambda: service.renew(NS, "ghost"),
    )
    for call in calls:
        with pytest.raises(NotFoundError):
            call()


def test_a_report_after_the_end_is_refused(service: TuningService) -> None:
    submit(service)
    trial = asked(service)
    service.tell(NS, trial.name, {"loss": 1})
    reaches(service, trial, "Succeeded")

    with refused("report-ended"):
        service.report(NS, trial.name, {"loss": 2})


def test_a_lost_trial_is_asked_for_again_and_its_first_caller_learns_of_it(service: TuningService) -> None:
    submit(service, parallelTrialCount=1)
    lost = asked(service, "lost", client="alice", lease_seconds=1)
    again = asked(service, "again", client="bob")

    assert again.name == lost.name
    with refused("lease-lost"):
        service.tell(NS, lost.name, {"loss": 1}, ask_id="lost")
    with pytest.raises(InvalidError):
        service.renew(NS, lost.name, ask_id="lost")
    service.tell(NS, again.name, {"loss": 2}, ask_id="again")
    reaches(service, again, "Succeeded")
    assert objective_value(service.get(Trial, NS, again.name)) == "2.0"


def test_a_caller_that_comes_back_before_another_one_keeps_its_trial(service: TuningService) -> None:
    submit(service)
    trial = asked(service, "late", client="alice", lease_seconds=1)
    eventually(lambda: "alice gave no sign of life" in running_condition(service.get(Trial, NS, trial.name)).message)
    assert state(service, trial) == "Pending"
    service.renew(NS, trial.name, ask_id="late")
    reaches(service, trial, "Running")

    service.tell(NS, trial.name, {"loss": 1}, ask_id="late")
    reaches(service, trial, "Succeeded")


def test_signs_of_life_keep_a_trial(service: TuningService) -> None:
    submit(service)
    trial = asked(service, "one", lease_seconds=2)
    before = lease_of(service.get(Trial, NS, trial.name))
    service.renew(NS, trial.name, ask_id="one")
    after = lease_of(service.get(Trial, NS, trial.name))

    assert before is not None
    assert after is not None
    assert after.until > before.until


def test_a_lost_trial_fails_where_the_experiment_says_so(service: TuningService) -> None:
    submit(service, annotations={"katib.kubeflow.org/lost-leases": "fail"})
    trial = asked(service, client="alice", lease_seconds=1)
    reaches(service, trial, "Failed")

    assert last_condition(service.get(Trial, NS, trial.name)).message == (
        "Trial has failed: alice gave no sign of life for 1 s"
    )
    assert service.tell(NS, trial.name, {"loss": 1}).stop  # it came too late, which is no error


def test_the_goal_of_one_trial_stops_the_others(service: TuningService) -> None:
    submit(service, objective={"type": "minimize", "objectiveMetricName": "loss", "goal": 0.01})
    one, other = asked(service), asked(service)
    service.tell(NS, one.name, {"loss": 0.001})
    ended(service)
    reaches(service, other, "Killed")

    assert "Objective goal has reached" in service.report(NS, other.name, {"loss": 1}).stop
    assert "Objective goal has reached" in service.tell(NS, other.name, {"loss": 1}).stop
    over = ask(service)
    assert (over.trial, over.is_over) == (None, True)
    assert "Objective goal has reached" in over.reason


def test_twenty_callers_that_ask_for_more_than_there_is_get_each_trial_once(service: TuningService) -> None:
    submit(service, maxTrialCount=50, parallelTrialCount=20)
    told: list[str] = []
    lock = threading.Lock()

    def work(_number: int) -> None:
        while (trial := ask(service).trial) is not None:
            with lock:
                told.append(trial.name)
            service.tell(NS, trial.name, {"loss": float(assignments_of(trial)["lr"])})

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(work, range(20)))
    experiment = ended(service)

    assert len(told) == len(set(told)) == 50
    assert experiment.status.trials_succeeded == experiment.status.trials == 50


def test_all_who_wait_are_served_though_a_learning_algorithm_is_asked_only_then(service: TuningService) -> None:
    submit(service, algorithm={"algorithmName": "tpe"}, maxTrialCount=21, parallelTrialCount=20)
    first = asked(service)
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(asked, service) for _ in range(20)]
        wait(waiting, return_when=FIRST_COMPLETED)  # nineteen fit beside the first
        service.tell(NS, first.name, {"loss": 1})
        names = {given.result().name for given in waiting}

    assert len(names) == 20
    assert first.name not in names


def test_an_experiment_whose_trials_run_as_jobs_gives_none(service: TuningService) -> None:
    service.submit(json.dumps(an_experiment()), source="demo.yaml")

    with refused("ask-template"):
        ask(service)


def test_a_deleted_experiment_takes_its_trials_with_it(service: TuningService) -> None:
    submit(service)
    trial = asked(service)
    service.delete(NS, "demo")

    with pytest.raises(NotFoundError):
        service.tell(NS, trial.name, {"loss": 1})


def test_the_program_that_reads_a_file_without_template_is_warned(service: TuningService) -> None:
    notices = service.validate(json.dumps(an_experiment(trialTemplate=None)), source="demo.yaml")

    assert any("there is no spec.trialTemplate" in notice for notice in notices)


def test_on_a_cluster_readings_need_the_key_of_the_installation_and_ends_do_not() -> None:
    with over_cluster(has_key=False) as service:
        submit(service)
        trial = asked(service)
        with pytest.raises(ForbiddenError, match="a token is required to report"):
            service.report(NS, trial.name, {"loss": 1})
        service.tell(NS, trial.name, {"loss": 2})  # the controllers store its last readings
        reaches(service, trial, "Succeeded")


def test_on_a_cluster_who_may_not_change_a_trial_may_not_report_either() -> None:
    refused: list[str] = []

    def refuse(call: Call) -> ForbiddenError | None:
        return ForbiddenError("trials: you may not patch them") if call.verb in refused else None

    with over_cluster(refuse) as service:
        submit(service)
        trial = asked(service)
        refused.append("patch")
        with pytest.raises(ForbiddenError, match="you may not patch them"):
            service.report(NS, trial.name, {"loss": 1})

        assert not service.metrics(NS, trial.name)
