"""Optuna's own client, unmodified, and Optuna's own tests of a storage, at the socket of `katib serve`.

`make test-optuna` runs them: the client needs a newer protobuf than Katib's official SDK, with which all other tests
run. The order of a trial's parameters is a map on the wire, which the client's C code does not keep, whatever the
server; so the tests run with protobuf's Python code, which does.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

runtime_version = pytest.importorskip("google.protobuf.runtime_version", reason="`make test-optuna` installs it")

import grpc  # noqa: E402
import optuna  # noqa: E402 - after the check that it can be used
from optuna.storages import BaseStorage, GrpcStorageProxy  # noqa: E402
from optuna.testing.pytest_storages import StorageTestCase  # noqa: E402

from katib.doors.optuna_storage.routes import storage_routes  # noqa: E402
from katib.doors.optuna_storage.server import StorageServer  # noqa: E402
from katib.doors.rest.server import Server  # noqa: E402
from katib.errors import ForbiddenError, UnavailableError  # noqa: E402
from katib.integrations.optuna import storage as katib_storage  # noqa: E402
from katib.integrations.optuna.storage import _RefusedError  # noqa: E402
from katib.model.types import Experiment, Trial  # noqa: E402
from katib.places.machine import open_engine  # noqa: E402
from katib.places.machine.engine import Engine  # noqa: E402
from katib.service.tuning.states import state_of  # noqa: E402
from tests.support.waiting import eventually  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("default")]

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    directory = tmp_path_factory.mktemp("data")
    with open_engine(data_dir=directory, own_process=False) as running:
        running.start()
        with StorageServer(running.chosen_trials, directory) as server:
            os.environ["KATIB_HOME"] = str(server.path.parent)
            yield running


def client(directory: Path | None = None) -> GrpcStorageProxy:
    """Return the stock client."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GrpcStorageProxy(host=f"unix:{directory or os.environ['KATIB_HOME']}/optuna.sock", port=13000)


@pytest.fixture
def storage(engine: Engine) -> Iterator[GrpcStorageProxy]:
    made = client()
    yield made
    for study in made.get_all_studies():
        made.delete_study(study._study_id)
    made.close()


class TestStorageOfOptuna(StorageTestCase):
    """Optuna's own tests of a storage."""


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -3, 3)
    kind = trial.suggest_categorical("kind", ["a", "b", None])
    if kind == "a":
        x += trial.suggest_int("n", 1, 8, log=True)
    for step in range(3):
        trial.report(x * x + step, step)
    if trial.number % 5 == 4:
        raise optuna.TrialPruned
    return x * x


def experiment(engine: Engine, name: str) -> Experiment:
    return engine.service.get(Experiment, "default", name)


def trials(engine: Engine, name: str) -> tuple[Trial, ...]:
    return engine.service.trials("default", name).items


def test_what_a_study_writes_is_what_everything_of_ours_reads(engine: Engine, storage: BaseStorage) -> None:
    study = optuna.create_study(study_name="Größe 1", storage=storage, sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial({"x": 0.5, "kind": "b"})
    # Threads give the sampler new seeds, so only what is enqueued is sure to need `n`.
    study.enqueue_trial({"kind": "a"})
    study.optimize(objective, n_trials=10, n_jobs=4)
    name = next(e.name for e in engine.service.experiments() if e.name.startswith("gr-e-1-"))
    found = trials(engine, name)

    assert sorted(state_of(trial) for trial in found) == ["EarlyStopped"] * 2 + ["Succeeded"] * 8
    assert {one.name for one in experiment(engine, name).spec.parameters} == {"x", "kind", "n"}
    assert {one.name: one.value for one in found[0].spec.parameter_assignments} == {"x": "0.5", "kind": "b"}
    readings = engine.service.metrics("default", f"{name}-0")
    points = [(reading.step, float(reading.value)) for reading in readings]
    assert points == [(0, 0.25), (1, 1.25), (2, 2.25), (2, 0.25)]
    expected = f"{name}-{study.best_trial.number}"
    eventually(lambda: (best := engine.service.best("default", name)) is not None and best.name == expected)


def test_ask_and_tell_directions_constraints_and_attributes(engine: Engine, storage: BaseStorage) -> None:
    def within(trial: optuna.trial.FrozenTrial) -> tuple[float]:
        return (trial.params["x"] - 0.5,)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.NSGAIISampler(seed=0, constraints_func=within, population_size=4)
    study = optuna.create_study(
        study_name="several", storage=storage, directions=["minimize", "maximize"], sampler=sampler
    )
    for _ in range(12):
        trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
        trial.set_user_attr("large", "ä" * 1_000_000 if trial.number == 0 else "small")
        study.tell(trial, [trial.params["x"], trial.params["x"] ** 2])
    study.set_user_attr("large", "x" * 10_000_000)

    again = optuna.load_study(study_name="several", storage=client())
    assert [t.values for t in again.trials] == [t.values for t in study.trials]
    assert again.trials[0].user_attrs["large"] == "ä" * 1_000_000
    assert len(again.user_attrs["large"]) == 10_000_000
    assert all(len(t.system_attrs["constraints"]) == 1 for t in again.trials)
    assert len(again.best_trials) > 0
    pareto = engine.service.get(Experiment, "default", "several").spec.objective
    assert pareto is not None
    assert [term.type for term in pareto.objectives] == ["minimize", "maximize"]


@pytest.mark.parametrize(
    "pruner",
    [
        optuna.pruners.MedianPruner(n_startup_trials=1),
        optuna.pruners.SuccessiveHalvingPruner(),
        optuna.pruners.HyperbandPruner(max_resource=3),
        optuna.pruners.PercentilePruner(25.0, n_startup_trials=2),
    ],
    ids=lambda pruner: type(pruner).__name__,
)
def test_a_pruner_decides_as_it_does_in_memory(storage: BaseStorage, pruner: optuna.pruners.BasePruner) -> None:
    def pruned(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        for step in range(4):
            trial.report(x + step * x, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x

    def states(storage: BaseStorage | None) -> list[str]:
        sampler = optuna.samplers.TPESampler(seed=1)
        study = optuna.create_study(study_name="pruned", storage=storage, sampler=sampler, pruner=copy.deepcopy(pruner))
        study.optimize(pruned, n_trials=12)
        return [f"{trial.state.name} {trial.params} {trial.intermediate_values}" for trial in study.trials]

    assert states(storage) == states(None)


def work(count: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    optuna.load_study(study_name="four", storage=client()).optimize(objective, n_trials=count)


def test_four_processes_share_a_study(engine: Engine, storage: BaseStorage) -> None:
    study = optuna.create_study(study_name="four", storage=storage)
    for number in range(6):
        study.enqueue_trial({"x": float(number) / 2})
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        pool.map(work, [5] * 4)

    found = study.trials
    assert [trial.number for trial in found] == list(range(20))
    assert [trial.params["x"] for trial in found[:6]] == [number / 2 for number in range(6)]
    assert all(trial.state.is_finished() for trial in found)
    assert len(trials(engine, "four")) == 20


ABANDONING = """
import os, sys, optuna
from katib.integrations.optuna import storage
study = optuna.load_study(study_name="beats", storage=storage(heartbeat_interval=1))
def objective(trial):
    trial.suggest_float("x", 0, 1)
    print("runs", flush=True)
    sys.stdin.read()
study.optimize(objective, n_trials=1)
"""


def test_the_trial_of_a_killed_program_fails_and_runs_again(engine: Engine, storage: BaseStorage) -> None:
    retry = optuna.storages.RetryHeartbeatStaleTrialCallback()
    ours = katib_storage(heartbeat_interval=1, grace_period=1.5, stale_trial_callback=retry)
    study = optuna.create_study(study_name="beats", storage=ours)
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", ABANDONING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "runs\n"
        program.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while study.trials[0].state is optuna.trial.TrialState.RUNNING and time.monotonic() < deadline:
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)

    killed = study.trials[0]
    again = [trial for trial in study.trials if trial.system_attrs.get("failed_trial") == 0]
    assert killed.state is optuna.trial.TrialState.FAIL
    assert [trial.params for trial in again] == [killed.params]


def start_server(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "katib", "serve", "--port", "0", "--data-dir", str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextmanager
def served(directory: Path) -> Iterator[subprocess.Popen[str]]:
    with start_server(directory) as server:
        assert server.stdout is not None
        eventually(lambda: "for Optuna:" in server.stdout.readline())  # type: ignore[union-attr]
        try:
            yield server
        finally:
            server.kill()


def test_what_was_acknowledged_outlives_a_killed_server(tmp_path: Path) -> None:
    acknowledged: dict[int, tuple[dict[str, float], list[float] | None]] = {}

    def note(_study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        acknowledged[trial.number] = (trial.params, trial.values)

    for number in range(6):
        with served(tmp_path) as server:
            killing = threading.Timer(0.2 + number / 10, server.kill)
            stock = client(tmp_path)
            stock.wait_server_ready(10)  # of a server that was just killed gRPC remembers that it was away
            study = optuna.create_study(study_name="s", storage=stock, load_if_exists=True)
            killing.start()
            with pytest.raises((grpc.RpcError, UnboundLocalError)):  # the second by Optuna, whose handling of it fails
                study.optimize(objective, n_trials=100_000, callbacks=[note])
            killing.join()
    with served(tmp_path):
        found = optuna.load_study(study_name="s", storage=katib_storage(tmp_path)).trials

    assert [trial.number for trial in found] == list(range(len(found)))
    assert len(acknowledged) > 6
    assert {number: (found[number].params, found[number].values) for number in acknowledged} == acknowledged
    assert sum(not trial.state.is_finished() for trial in found) <= 6


def test_a_program_waits_for_a_server_that_is_killed_and_started_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(served(tmp_path))]

        def restart(_study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
            if trial.number % 3 == 2:
                servers[-1].kill()
                servers[-1].wait()
                servers.append(start_server(tmp_path))
                stack.callback(servers[-1].communicate)
                stack.callback(servers[-1].kill)

        study = optuna.create_study(study_name="s", storage=katib_storage(tmp_path))
        study.optimize(objective, n_trials=9, callbacks=[restart])
        values = [trial.value for trial in study.trials]

        assert len(servers) == 4
        assert len(values) == 9
        assert [trial.value for trial in optuna.load_study(study_name="s", storage=client(tmp_path)).trials] == values


class LosesAnAnswer:
    """A stub to which the server ends after the call, and before the answer."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub
        self.lost = 0

    def __getattr__(self, call: str) -> Any:
        def send(request: Any) -> Any:
            answer = getattr(self.stub, call)(request)
            if call == "SetTrialStateValues" and not self.lost:
                self.lost += 1
                raise _RefusedError(UnavailableError("the server ended"))
            return answer

        return send


def test_the_end_of_a_trial_whose_answer_is_lost_is_stored_once(engine: Engine, storage: BaseStorage) -> None:
    ours = katib_storage()
    study = optuna.create_study(study_name="lost", storage=ours)
    trial, other = study.ask(), study.ask()
    losing = ours._stub = LosesAnAnswer(ours._stub)
    study.tell(trial, 0.5)
    with pytest.raises(ValueError, match="Cannot tell a COMPLETE trial"):
        study.tell(trial, 0.75)
    study.tell(other, state=optuna.trial.TrialState.FAIL)

    assert losing.lost == 1
    assert [found.value for found in storage.get_all_trials(study._study_id)] == [0.5, None]
    ours.close()


VANISHING = """
import optuna
from katib.integrations.optuna import storage
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name="vanishing", storage=storage())
def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    for step in range(3):
        trial.report(x, step)
    return x
print("ready", flush=True)
study.optimize(objective)
"""


@pytest.mark.slow
def test_clients_that_vanish_lose_no_trial_and_double_none(engine: Engine, storage: BaseStorage) -> None:
    study = optuna.create_study(study_name="vanishing", storage=storage)
    command = [sys.executable, "-W", "ignore", "-c", VANISHING]
    for number in range(12):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            time.sleep(0.02 * number)
            program.kill()
    found = study.trials

    ended = [trial for trial in found if trial.state.is_finished()]
    assert [trial.number for trial in found] == list(range(len(found)))
    assert len(ended) > 12
    assert len(found) - len(ended) <= 12
    for trial in ended:
        assert trial.values == [trial.params["x"]]
        assert trial.intermediate_values == dict.fromkeys(range(3), trial.params["x"])
    assert len(trials(engine, "vanishing")) == len(found)


@pytest.mark.slow
def test_many_readings_and_large_attributes_are_kept(engine: Engine, storage: BaseStorage) -> None:
    study = optuna.create_study(study_name="large", storage=storage)
    trial = study.ask()
    text = "ü" * 5_000_000  # ten megabytes
    trial.set_user_attr("large", text)
    for step in range(10_000):
        trial.report(10_000 - step, step)
    study.tell(trial, 0.5)

    (found,) = optuna.load_study(study_name="large", storage=client()).trials
    assert found.intermediate_values == {step: 10_000.0 - step for step in range(10_000)}
    assert found.user_attrs == {"large": text}
    assert len(engine.service.metrics("default", "large-0", limit=100_000)) == 10_001


def test_two_writers_with_different_distributions_of_one_name(engine: Engine, storage: BaseStorage) -> None:
    study = optuna.create_study(study_name="two", storage=storage)
    first, second = study.ask(), optuna.load_study(study_name="two", storage=client()).ask()
    first.suggest_float("x", 0, 1)

    with pytest.raises(ValueError):  # noqa: PT011 - the client keeps the message in the cause
        second.suggest_categorical("x", ["a"])
    second.suggest_float("x", -5, 0.5)

    space = experiment(engine, "two").spec.parameters[0].feasible_space
    assert (float(space.min), float(space.max)) == (-5, 1)


def test_a_server_elsewhere_is_reached_with_its_token(engine: Engine, storage: BaseStorage) -> None:
    doors = [storage_routes(engine.chosen_trials)]
    with Server(engine.service, host="127.0.0.1", port=0, token="secret", doors=doors) as server:
        first = katib_storage(server=server.url, token="secret")
        there = pickle.loads(pickle.dumps(first))
        first.close()
        study = optuna.create_study(study_name="there", storage=there, sampler=optuna.samplers.TPESampler(seed=0))
        study.optimize(objective, n_trials=6)
        with pytest.raises(optuna.exceptions.DuplicatedStudyError):
            optuna.create_study(study_name="there", storage=there)
        with pytest.raises(KeyError):
            there.get_trial(1)
        with pytest.raises(ForbiddenError, match="asks for a token"):
            katib_storage(server=server.url, token="guess")
        same = optuna.load_study(study_name="there", storage=storage)
        assert [trial.values for trial in same.trials] == [trial.values for trial in study.trials]
        there.close()


def test_no_server_is_one_line_with_the_command_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=f"start `katib serve --data-dir {tmp_path}`"):
        katib_storage(tmp_path)
