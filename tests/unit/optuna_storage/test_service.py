"""The calls of Optuna's protocol over a SQLite file, without controllers and without a wire."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from katib.doors.optuna_storage.messages import CALLS, DIRECTIONS, STATES
from katib.doors.optuna_storage.routes import storage_routes
from katib.doors.optuna_storage.server import LONGEST_PATH, StorageServer, line_to_copy, socket_path
from katib.doors.optuna_storage.service import StorageService, handlers
from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.engine.controllers.kinds import EXPERIMENT, TRIAL, with_status
from katib.engine.controllers.trial.plan import killed
from katib.engine.databases.sqlite import Database, open_database
from katib.engine.observations.sql import SqlObservationLog
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key
from katib.engine.stores.sql import SqlStore
from katib.engine.stores.sql.attributes import SqlAttributes
from katib.errors import ForbiddenError, NotFoundError, TerminalError
from katib.model.names import name_of_title
from katib.model.types import Experiment, Trial
from katib.model.validation.experiment import check_metadata
from katib.places.machine.data import STATUS_KINDS
from katib.service.tuning.chosen_trials import ChosenTrials
from katib.service.tuning.ports import CallersLog
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.tuning import MemoryTuningService

MINIMIZE, MAXIMIZE = range(len(DIRECTIONS))
RUNNING, COMPLETE, PRUNED, FAIL, WAITING = range(len(STATES))
UNIT = {"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 1.0, "log": False, "step": None}}


class Refused(Exception):  # noqa: N818 - what the wire says
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")


class Context:
    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Refused(code, details)


@dataclass
class World:
    directory: Path
    store: SqlStore = field(init=False)
    trials: ChosenTrials = field(init=False)
    _database: Database | None = None

    def restart(self) -> None:
        """Forget what is in memory."""
        self.close()
        self._database = database = open_database(self.directory / "katib.db")
        self.store = SqlStore(database, STATUS_KINDS)
        log = SqlObservationLog(database)
        attributes = SqlAttributes(database)
        self.trials = ChosenTrials(self.store, attributes, CallersLog(log), self._delete, SystemClock(), "default")
        self._handlers = handlers(StorageService(self.trials))

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _delete(self, namespace: str, name: str) -> None:
        self.store.delete(EXPERIMENT, Key(namespace, name))

    def call(self, name: str, **fields: Any) -> Any:
        """Return the reply to a call; both cross the wire as bytes."""

        @dataclass
        class Details:
            method: str
            invocation_metadata: Any = ()

        handler: Any = self._handlers.service(Details(f"/optuna.StorageService/{name}"))  # type: ignore[arg-type]
        request, reply = CALLS[name]
        answer = handler.unary_unary(handler.request_deserializer(request(**fields).SerializeToString()), Context())
        return reply.FromString(answer)

    def study(self, title: str = "s", *directions: int) -> int:
        return int(self.call("CreateNewStudy", study_name=title, directions=directions or [MINIMIZE]).study_id)

    def begin(self, study: int) -> int:
        return int(self.call("CreateNewTrial", study_id=study, template_trial_is_none=True).trial_id)

    def choose(self, trial: int, name: str, value: float, distribution: dict[str, Any] | None = None) -> None:
        text = json.dumps(distribution or UNIT)
        self.call("SetTrialParameter", trial_id=trial, param_name=name, param_value_internal=value, distribution=text)

    def turn(self, trial: int, state: int, *values: float) -> bool:
        return bool(self.call("SetTrialStateValues", trial_id=trial, state=state, values=values).trial_updated)

    def trial(self, trial: int) -> Any:
        return self.call("GetTrial", trial_id=trial).trial

    def object(self, name: str) -> Trial:
        return Trial.decode(self.store.get(TRIAL, Key("default", name)))

    def experiment(self, name: str = "s") -> Experiment:
        return Experiment.decode(self.store.get(EXPERIMENT, Key("default", name)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.restart()
    yield made
    made.close()


def space(distribution: str, **attributes: Any) -> dict[str, Any]:
    return {"name": distribution, "attributes": attributes}


def test_what_a_client_writes_is_there_after_a_restart(world: World) -> None:
    study = world.study("s", MAXIMIZE)
    ended, going_on = world.begin(study), world.begin(study)
    world.choose(ended, "x", 0.25)
    world.choose(ended, "layers", 3, space("IntDistribution", low=1, high=8, log=False, step=1))
    world.choose(ended, "kind", 1, space("CategoricalDistribution", choices=["a", None, True, 2.5]))
    world.call("SetTrialIntermediateValue", trial_id=ended, step=3, intermediate_value=float("nan"))
    world.call("SetTrialIntermediateValue", trial_id=ended, step=4, intermediate_value=0.5)
    world.call("SetTrialIntermediateValue", trial_id=ended, step=4, intermediate_value=float("-inf"))
    world.call("SetTrialUserAttribute", trial_id=ended, key="note", value='"ä"')
    world.call("SetTrialSystemAttribute", trial_id=ended, key="note", value="[1]")
    world.turn(ended, COMPLETE, float("inf"))
    world.choose(going_on, "x", 0.75)
    world.call("SetStudyUserAttribute", study_id=study, key="k", value="1")
    world.call("SetStudySystemAttribute", study_id=study, key="k", value="2")
    before = [world.trial(ended), world.trial(going_on), world.call("GetAllStudies")]

    world.restart()

    assert list(map(str, before)) == list(
        map(str, [world.trial(ended), world.trial(going_on), world.call("GetAllStudies")])
    )
    assert world.call("GetStudyIdFromName", study_name="s").study_id == study
    assert world.begin(study) == going_on + 1


def test_a_trial_and_its_search_space_are_objects_that_everything_of_ours_reads(world: World) -> None:
    study = world.study()
    first, second = world.begin(study), world.begin(study)
    world.choose(first, "x", 0.25)
    world.choose(second, "x", 4.0, space("FloatDistribution", low=-2.0, high=0.5, log=False, step=None))
    world.choose(second, "kind", 0, space("CategoricalDistribution", choices=["a", "b"]))
    world.turn(first, COMPLETE, 1.5)

    assert [(one.name, one.value) for one in world.object("s-0").spec.parameter_assignments] == [("x", "0.25")]
    assert world.object("s-1").spec.parameter_assignments == ()
    world.trials.flush()
    assert [(one.name, one.value) for one in world.object("s-1").spec.parameter_assignments] == [
        ("x", "4.0"),
        ("kind", "a"),
    ]
    spaces = {one.name: one.feasible_space for one in world.experiment().spec.parameters}
    assert (spaces["x"].min, spaces["x"].max) == ("-2.0", "1.0")
    assert spaces["kind"].list == ("a", "b")


@pytest.mark.parametrize(
    ("distribution", "value"),
    [
        pytest.param(space("IntDistribution", low=0, high=1, log=False, step=1), 1.0, id="another type"),
        pytest.param(space("FloatDistribution", low=0.1, high=1.0, log=True, step=None), 1.0, id="logarithmic"),
        pytest.param(space("CategoricalDistribution", choices=["a"]), 0.0, id="choices"),
        pytest.param(space("UnheardOf"), 0.0, id="unknown"),
    ],
)
def test_a_name_keeps_its_kind_of_distribution(world: World, distribution: dict[str, Any], value: float) -> None:
    study = world.study()
    world.choose(world.begin(study), "x", 0.5)

    with pytest.raises(Refused, match="INVALID_ARGUMENT: parameter x"):
        world.choose(world.begin(study), "x", value, distribution)


def test_a_waiting_trial_is_started_once(world: World) -> None:
    study = world.study()
    template = CALLS["CreateNewTrial"][0]().template_trial
    template.state = WAITING
    trial = world.call("CreateNewTrial", study_id=study, template_trial=template).trial_id

    assert world.trial(trial).state == WAITING
    assert world.turn(trial, RUNNING)
    assert not world.turn(trial, RUNNING)
    assert world.trial(trial).datetime_start


@pytest.mark.parametrize("state", [COMPLETE, PRUNED, FAIL])
def test_a_trial_that_has_ended_takes_nothing_more(world: World, state: int, golden: Golden) -> None:
    trial = world.begin(world.study())
    world.turn(trial, state, *([1.0] if state == COMPLETE else []))

    with golden.raises(Refused):
        world.turn(trial, RUNNING)
    with pytest.raises(Refused, match="FAILED_PRECONDITION"):
        world.choose(trial, "x", 0.5)
    with pytest.raises(Refused, match="FAILED_PRECONDITION"):
        world.call("SetTrialIntermediateValue", trial_id=trial, step=0, intermediate_value=0.5)
    with pytest.raises(Refused, match="FAILED_PRECONDITION"):
        world.call("SetTrialUserAttribute", trial_id=trial, key="k", value="1")


def test_what_has_ended_takes_little_memory(world: World) -> None:
    study = world.study()
    ended, going_on = world.begin(study), world.begin(study)
    world.turn(ended, COMPLETE, 1.0)

    known = next(iter(world.trials._known.values()))
    assert list(known.going) == [1]
    assert len(known._ended[0]) < 200  # bytes: packed, without its object
    assert [world.trial(one).number for one in (ended, going_on)] == [0, 1]


def test_a_trial_that_its_user_ended_has_failed(world: World) -> None:
    study = world.study()
    noticed, unnoticed = world.begin(study), world.begin(study)
    for name in ("s-0", "s-1"):
        trial = world.object(name)
        world.store.update_status(with_status(trial, killed(trial.status, "stopped", SystemClock().now(), 1.0)))
    world.trials.note(Key("default", "s-0"), world.object("s-0"))

    assert world.trial(noticed).state == FAIL
    with pytest.raises(Refused, match="FAILED_PRECONDITION"):
        world.turn(unnoticed, COMPLETE, 1.0)
    world.restart()
    assert world.trial(unnoticed).state == FAIL


def test_only_new_trials_and_those_asked_for_are_sent(world: World) -> None:
    study = world.study()
    trials = [world.begin(study) for _ in range(4)]

    found = world.call("GetTrials", study_id=study, included_trial_ids=[trials[1]], trial_id_greater_than=trials[2])
    everything = world.call("GetTrials", study_id=study, trial_id_greater_than=-1)

    assert [trial.trial_id for trial in found.trials] == [trials[1], trials[3]]
    assert [trial.trial_id for trial in everything.trials] == trials


def test_numbers_are_not_given_twice(world: World) -> None:
    first = world.study()
    world.call("DeleteStudy", study_id=first)
    second = world.study()

    assert second != first
    for study in (first, second + 1):
        with pytest.raises(Refused, match="NOT_FOUND"):
            world.call("GetStudyDirections", study_id=study)
    with pytest.raises(Refused, match="ALREADY_EXISTS"):
        world.study()


def test_a_study_of_another_kind_is_left_alone(world: World, golden: Golden) -> None:
    world.store.create(
        {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "s", "namespace": "default"}}
    )

    with golden.raises(Refused):
        world.call("GetStudyIdFromName", study_name="s")


@pytest.mark.parametrize("title", ["s", "", "Ünïcödé 研究", "UPPER", "1st", "a" * 300, "no-name-0aec85", "-", "a\nb"])
def test_any_title_stands_for_a_name_of_its_own(world: World, title: str) -> None:
    study = world.study(title)
    name = name_of_title(title)

    assert not list(check_metadata(world.experiment(name).metadata))
    assert world.call("GetStudyNameFromId", study_id=study).study_name == title
    assert name_of_title(title + "x") != name


def test_a_stopped_study_takes_no_trials(world: World, golden: Golden) -> None:
    study = world.study()
    stopped = {"metadata": {"annotations": {"katib.kubeflow.org/stopped": "true"}}}
    world.store.patch(world.store.get(EXPERIMENT, Key("default", "s")), stopped)

    with golden.raises(Refused):
        world.begin(study)


def test_a_directory_with_a_long_path_is_refused_with_its_length() -> None:
    with refused("socket-path"):
        socket_path(Path("/" + "d" * LONGEST_PATH))


def test_a_client_of_this_account_connects_at_the_socket(world: World) -> None:
    study = world.study()
    request, reply = CALLS["GetStudyNameFromId"]
    assert line_to_copy(world.directory) == ""
    with (
        StorageServer(world.trials, world.directory) as server,
        grpc.insecure_channel(f"unix:{world.directory}/optuna.sock:13000") as channel,
    ):
        assert (
            line_to_copy(world.directory) == f'GrpcStorageProxy(host="unix:{world.directory}/optuna.sock", port=13000)'
        )
        assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
        call = channel.unary_unary(
            "/optuna.StorageService/GetStudyNameFromId", request.SerializeToString, reply.FromString
        )
        assert call(request(study_id=study)).study_name == "s"
        with pytest.raises(grpc.RpcError) as refused:
            call(request(study_id=study + 1))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert not server.path.exists()


def test_the_socket_of_a_killed_server_is_replaced_and_a_file_is_not(world: World, golden: Golden) -> None:
    path = socket_path(world.directory)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with StorageServer(world.trials, world.directory):
        pass
    path.write_text("mine")

    with (
        golden.raises(TerminalError),
        StorageServer(world.trials, path.parent),
    ):
        pass


def test_the_same_calls_are_answered_by_http_with_a_token(world: World, golden: Golden) -> None:
    study = world.study()
    request, reply = CALLS["GetStudyNameFromId"]
    doors = [storage_routes(world.trials)]
    with Server(MemoryTuningService(), host="127.0.0.1", port=0, token="secret", doors=doors) as server:
        with HttpTuningService(server.url, "secret") as client:
            answer = client.exchange("optuna/GetStudyNameFromId", request(study_id=study).SerializeToString())
            assert reply.FromString(answer).study_name == "s"
            with golden.raises(NotFoundError):
                client.exchange("optuna/GetStudyNameFromId", request(study_id=study + 1).SerializeToString())
            with pytest.raises(NotFoundError, match="has no call Open"):
                client.exchange("optuna/Open", b"")
            with refused("optuna-body"):
                client.exchange("optuna/GetTrial", b"\xff")
        with HttpTuningService(server.url, "guess") as stranger, pytest.raises(ForbiddenError):
            stranger.exchange("optuna/GetAllStudies", b"")
