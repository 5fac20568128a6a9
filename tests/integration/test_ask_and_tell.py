"""`katib.create`: trials of this program, in its own engine and on a server, killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import katib
from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.errors import ForbiddenError, InvalidError, KatibError
from katib.model.types import Experiment, Trial
from katib.places.machine import open_engine
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.states import is_completed
from tests.support.cli import environment
from tests.support.experiments import an_experiment
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.waiting import eventually

SPACE = {"x": katib.search.double(-1, 1)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with open_engine(data_dir=tmp_path / "server", own_process=False) as engine:
        engine.start()
        with Server(engine.service, host="127.0.0.1", port=0) as made:
            yield made.url


@pytest.fixture(params=["engine", "server"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where experiments are kept, as arguments of `katib.create`."""
    if request.param == "server":
        return {"server": request.getfixturevalue("server")}
    return {"data_dir": tmp_path / "data"}


def create(home: dict[str, Any], **options: Any) -> katib.Experiment:
    return katib.create(
        "mine", SPACE, **{"objective": "loss", "algorithm": "random", "max_trials": 6, **options}, **home
    )


def test_a_plain_loop_evaluates_every_trial(home: dict[str, Any]) -> None:
    with create(home) as experiment:
        values = {}
        for trial in experiment.ask_until_done():
            trial.report(loss=9, step=3)
            values[trial.name] = trial.parameters["x"] ** 2
            trial.tell(values[trial.name])
        result = experiment.result()

    assert len(values) == len(result.trials) == 6
    assert result.best.value == min(values.values())  # what it ended with, not what was reported before
    assert "max trial count" in result.reason


def test_each_trial_that_was_told_is_in_the_result_at_once(home: dict[str, Any]) -> None:
    with create(home, max_trials=20) as experiment:
        found = []
        for number in range(20):
            trial = experiment.ask()
            assert trial is not None
            trial.tell(float(-number))
            result = experiment.result()
            found.append((result.best.name, result.best.value, len(result.trials), experiment.has_ended))
            assert found[-1] == (trial.name, -number, number + 1, number == 19)


def test_the_same_program_with_a_larger_budget_goes_on(home: dict[str, Any]) -> None:
    counts = []
    for budget in (2, 2, 5):
        with create(home, max_trials=budget) as experiment:
            counts.append(sum(bool(trial.tell(1) or True) for trial in experiment.ask_until_done()))
            assert experiment.has_ended

    assert counts == [2, 0, 3]


def test_all_of_it_again_keeps_what_was_found_under_a_name_with_a_number(home: dict[str, Any]) -> None:
    with create(home, max_trials=2) as experiment:
        for trial in experiment.ask_until_done():
            trial.tell(7)
    with refused("update-immutable"):
        create(home, direction="maximize")
    for trials in (1, 3):
        with create(home, max_trials=trials, direction="maximize", restart=True) as experiment:
            for trial in experiment.ask_until_done():
                trial.tell(8)

    place = {key: value for key, value in home.items() if key in ("server", "data_dir")}
    found = {name: katib.open(name, **place) for name in ("mine", "mine-1", "mine-2")}
    assert {name: (len(one.trials), one.best.value) for name, one in found.items()} == {
        "mine": (3, 8),
        "mine-1": (2, 7),
        "mine-2": (1, 8),
    }


def test_values_have_the_types_of_the_space(home: dict[str, Any]) -> None:
    choice = (1, 2)
    space = {"n": katib.search.int(1, 3), "any": katib.search.categorical([choice]), "x": katib.search.double(0, 1)}
    with katib.create("typed", space, algorithm="random", **home) as experiment:
        trial = experiment.ask()
        assert trial is not None
        kinds = {name: type(value) for name, value in trial.parameters.items()}

    assert trial.parameters["any"] is choice
    assert kinds == {"n": int, "any": tuple, "x": float}


def test_a_pool_has_several_trials_at_once_and_no_more(home: dict[str, Any]) -> None:
    most, lock = [0], threading.Lock()
    out: set[str] = set()

    def work(trial: Any) -> None:
        with lock:
            out.add(trial.name)
            most[0] = max(most[0], len(out))
        with trial:
            with lock:
                out.discard(trial.name)
            trial.tell(loss=1)

    with create(home, max_trials=12) as experiment, ThreadPoolExecutor(8) as pool:
        for trial in experiment.ask_until_done(parallel=3):
            pool.submit(work, trial)
        assert len(experiment.result().trials) == 12

    assert most[0] <= 3


def test_coroutines_await_the_same_calls(home: dict[str, Any]) -> None:
    async def main(experiment: katib.Experiment) -> int:
        count = 0
        async for trial in experiment.asynchronous().ask_until_done():
            await trial.report(loss=2)
            await trial.tell(loss=1)
            count += 1
        return count

    with create(home, max_trials=3) as experiment:
        assert asyncio.run(main(experiment)) == 3


def test_early_stopping_raises_in_the_report_and_ends_the_trial(home: dict[str, Any]) -> None:
    stopped, good = [], 3
    settings = {"min_trials_required": good, "start_step": 1}
    options = {"early_stopping": "medianstop", "early_stopping_settings": settings, "max_trials": good + 1}
    with create(home, **options) as experiment:
        for number, trial in enumerate(experiment.ask_until_done()):
            with trial:
                for step in range(3 if number < good else 10_000):
                    trial.report(loss=0.1 if number < good else 100 + step, step=step)
                trial.tell()
            stopped.append(bool(trial.should_stop))
        states = [trial.state for trial in experiment.result().trials]

    assert stopped == [False] * good + [True]
    assert states == ["Succeeded"] * good + ["EarlyStopped"]


def test_a_program_of_optuna_is_told_our_words_and_reports_as_it_does(home: dict[str, Any], golden: Golden) -> None:
    with create(home) as experiment:
        trial = experiment.ask()
        assert trial is not None
        foreign: Any = trial
        with golden.raises(AttributeError):
            foreign.suggest_float("lr", 0, 1)
        trial.report(0.5, 4)
        trial.tell()

        assert experiment.result().trials[0].value == 0.5


def test_an_exception_in_the_block_fails_the_trial_and_is_raised(home: dict[str, Any]) -> None:
    with create(home, max_failed=3) as experiment:
        trial = experiment.ask()
        assert trial is not None
        with pytest.raises(ZeroDivisionError), trial:
            raise ZeroDivisionError("by zero")
        eventually(lambda: experiment.result().trials[0].state == "Failed")


def test_a_loop_that_forgets_to_tell_is_told_so(home: dict[str, Any]) -> None:
    with create(home) as experiment:
        trials = experiment.ask_until_done()
        first = next(trials)
        with pytest.raises(RuntimeError, match=f"{first.name} has not ended"):
            next(trials)


def test_a_loop_that_an_exception_ended_begins_with_its_trial(home: dict[str, Any]) -> None:
    def evaluate(value: Callable[[float], float]) -> list[str]:
        kept.append(create(home, max_trials=3))
        names = []
        for trial in kept[-1].ask_until_done():
            kept.append(trial)  # as a notebook does
            names.append(trial.name)
            trial.tell(value(trial.parameters["x"]))
        return names

    kept: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        evaluate(lambda x: x / 0)
    names = evaluate(lambda x: x)
    for one in kept:
        if isinstance(one, katib.Experiment):
            one.close()

    assert names[0] == kept[1].name
    assert len(names) == 3


def test_a_trial_that_was_told_after_its_loop_is_not_given_again(home: dict[str, Any]) -> None:
    with create(home, max_trials=2) as experiment:
        loop = experiment.ask_until_done()
        first = next(loop)
        loop.close()  # type: ignore[attr-defined]  # as `break` does
        first.tell(1)
        assert [trial.tell(2) for trial in experiment.ask_until_done()] == [""]


def test_who_waits_for_a_trial_is_told_which_ones_have_not_ended(
    home: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("katib.sdk.asking._UNSAID_SECONDS", 0.1)
    monkeypatch.setattr("katib.sdk.asking._LOOK_SECONDS", 0.1)
    with create(home) as experiment:
        first = experiment.ask()
        assert first is not None
        assert experiment.ask(timeout_seconds=1) is None
        said = f"mine waits for a trial, and these have not ended: {first.name}; tell(...) or fail() of a trial makes"

    assert capsys.readouterr().err.count(said) == 1


def test_a_trial_that_is_forgotten_is_given_again(home: dict[str, Any]) -> None:
    with create(home, lease_seconds=1) as experiment:
        first = experiment.ask()
        assert first is not None
        name = first.name
        del first
        again = experiment.ask(timeout_seconds=60)

    assert again is not None
    assert again.name == name


def test_signs_of_life_keep_a_trial_beyond_its_lease(home: dict[str, Any]) -> None:
    with create(home, lease_seconds=3) as experiment:
        first = experiment.ask()
        assert first is not None
        assert experiment.ask(timeout_seconds=5) is None  # one trial at a time, and its lease is renewed
        first.tell(loss=1)


def test_an_experiment_is_found_again_by_its_name(home: dict[str, Any]) -> None:
    with create(home, max_trials=2) as experiment:
        trial = experiment.ask()
        assert trial is not None
        trial.tell(loss=1)
        with katib.open("mine", **home).resume() as again:
            other = again.ask()
            assert other is not None
            other.tell(loss=2)
            assert again.ask() is None
            assert len(katib.open("mine", **home).trials) == 2


def test_what_is_wrong_is_said_in_the_words_of_the_arguments(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"^algorithm: "):
        katib.create("mine", SPACE, algorithm="rndom", data_dir=tmp_path)
    with pytest.raises(InvalidError, match=r"^lost: "):
        katib.create("mine", SPACE, lost="wait", data_dir=tmp_path)
    with pytest.raises(InvalidError, match="is not searched"):
        katib.create("mine", {**SPACE, "constant": 3}, data_dir=tmp_path)  # type: ignore[dict-item]


TOKEN = "secret"

CLIENT = """
import sys, time
import katib
from katib.errors import UnavailableError

def resumed():
    while True:
        try:
            return katib.open("demo", server=sys.argv[1]).resume(lease_seconds=5)
        except UnavailableError:  # the server is down just now
            time.sleep(0.1)

for trial in resumed().ask_until_done():
    trial.report(loss=1, step=1)
    trial.tell(loss=trial.parameters["lr"])
"""

KILLED_CLIENTS = """
import os, random, signal, sys, time, uuid
from katib.doors.rest.client import HttpTuningService
from katib.service.tuning.reading import assignments_of

def work(server):
    with HttpTuningService(server) as service:
        while True:
            ask, ids = uuid.uuid4().hex, {"ask_id": ""}
            given = service.ask("default", "demo", request_id=ask, lease_seconds=1, wait_seconds=5)
            if given.trial is not None:
                service.report("default", given.trial.name, {"loss": 1}, step=1, ask_id=ask, request_id=f"r{ask}")
                told = {"loss": float(assignments_of(given.trial)["lr"])}
                service.tell("default", given.trial.name, told, ask_id=ask, request_id=f"t{ask}")

random.seed(1)
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        work(sys.argv[1])
    time.sleep(random.uniform(0, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def run(program: str, *arguments: str) -> None:
    command = [sys.executable, "-c", program, *arguments]
    env = environment(KATIB_TOKEN=TOKEN)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def check_all_trials(server: str, count: int) -> None:
    """Check that so many trials were made, each ended with the value that its only caller to the end told."""
    with HttpTuningService(server, TOKEN) as service:
        eventually(lambda: is_completed(service.get(Experiment, "default", "demo")))
        trials = service.trials("default", "demo", limit=5_000).items
        assert len(trials) == count
        eventually(lambda: service.get(Experiment, "default", "demo").status.trials_succeeded == count)
        for trial in trials:
            assert trial.status.observation is not None
            told = float(assignments_of(trial)["lr"])
            assert float(trial.status.observation.metrics[0].latest) == told
            assert sum(float(one.value) == told for one in service.metrics("default", trial.name)) == 1


@pytest.mark.slow
def test_clients_that_are_killed_lose_no_trial_and_double_none(server: str) -> None:
    """A hundred clients are killed wherever they are, in an ask, a report or a tell; then one works to the end."""
    with HttpTuningService(server) as service:
        raw = an_experiment(trialTemplate=None, maxTrialCount=800, parallelTrialCount=160)
        service.submit(json.dumps(raw), source="demo.yaml")
    run(KILLED_CLIENTS, server, "100")
    run(CLIENT, server)

    check_all_trials(server, 800)


@pytest.mark.slow
def test_a_server_that_is_killed_loses_no_trial_and_its_clients_go_on(tmp_path: Path) -> None:
    """Ten times the server is killed wherever it is, while four clients ask, report and tell."""
    command = [sys.executable, "-m", "katib", "serve", "--data-dir", str(tmp_path / "data"), "--port"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    url = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        with HttpTuningService(url, TOKEN) as service, suppress(KatibError):
            return bool(service.algorithms())
        return False

    @contextmanager
    def serving() -> Iterator[subprocess.Popen[bytes]]:
        env = environment(KATIB_TOKEN=TOKEN)
        with subprocess.Popen([*command, port], env=env, stdout=subprocess.DEVNULL) as process:
            try:
                eventually(is_up)
                yield process
            finally:
                process.kill()

    clients: list[threading.Thread] = []
    for number in range(11):
        with serving() as process:
            if not clients:
                with HttpTuningService(url, TOKEN) as service:
                    raw = an_experiment(trialTemplate=None, maxTrialCount=2000, parallelTrialCount=8)
                    service.submit(json.dumps(raw), source="demo.yaml")
                clients = [threading.Thread(target=run, args=(CLIENT, url)) for _ in range(4)]
                for client in clients:
                    client.start()
            if number < 10:
                time.sleep(random.uniform(0.2, 1.0))
                continue
            for client in clients:
                client.join()
            check_all_trials(url, 2000)
            process.terminate()


@pytest.mark.slow
def test_ten_thousand_readings_of_a_trial_are_kept(tmp_path: Path) -> None:
    with open_engine(data_dir=tmp_path, own_process=False) as engine:
        engine.start()
        service = engine.service
        service.submit(json.dumps(an_experiment(trialTemplate=None)), source="demo.yaml")
        trial = service.ask("default", "demo", request_id="mine", wait_seconds=60).trial
        assert trial is not None
        for step in range(10_000):
            service.report("default", trial.name, {"loss": 10_000 - step}, step=step, request_id=f"r{step}")
        service.tell("default", trial.name, {"loss": 0.5})
        curve = service.metrics("default", trial.name, limit=100_000)
        observation = service.get(Trial, "default", trial.name).status.observation

    assert len(curve) == 10_001
    assert observation is not None
    assert (observation.metrics[0].max, observation.metrics[0].latest) == ("10000.0", "0.5")


def test_a_wrong_token_neither_gets_a_trial_nor_ends_one(tmp_path: Path) -> None:
    with open_engine(data_dir=tmp_path, own_process=False) as engine:
        engine.start()
        engine.service.submit(json.dumps(an_experiment(trialTemplate=None)), source="demo.yaml")
        given = engine.service.ask("default", "demo", request_id="mine", wait_seconds=60)
        assert given.trial is not None
        name = given.trial.name
        with (
            Server(engine.service, host="127.0.0.1", port=0, token="right") as made,
            HttpTuningService(made.url, "wrong") as stranger,
        ):
            for call in (
                lambda: stranger.ask("default", "demo", request_id="theirs"),
                lambda: stranger.report("default", name, {"loss": 1}),
                lambda: stranger.tell("default", name, {"loss": 1}),
                lambda: stranger.renew("default", name),
            ):
                with pytest.raises(ForbiddenError):
                    call()
        assert engine.service.get(Trial, "default", name).status.completion_time is None


WORKER = """
import sys, time
import katib

experiment = katib.create(
    "mine", {"x": katib.search.double(-1, 1)}, algorithm="random", max_trials=6, parallel=2, lease_seconds=2,
    data_dir=sys.argv[1],
)
for trial in experiment.ask_until_done():
    print(trial.name, flush=True)
    time.sleep(float(sys.argv[2]))
    trial.tell(trial.parameters["x"])
print(len(experiment.result().trials))
experiment.close()
"""


@pytest.mark.parametrize("leaves", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_programs_share_an_experiment_without_a_server_and_one_goes_on_for_the_other(
    tmp_path: Path, leaves: signal.Signals
) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "data")]
    pipe, env = subprocess.PIPE, environment()
    with subprocess.Popen([*command, "600"], env=env, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as one:
        assert one.stdout is not None
        first = one.stdout.readline()
        with subprocess.Popen([*command, "0.5"], env=env, stdout=pipe, text=True) as two:
            assert two.stdout is not None
            second = two.stdout.readline()  # while the other one works
            one.send_signal(leaves)
            *names, count = two.stdout.read().splitlines()

    assert (two.returncode, count) == (0, "6")
    assert {first.strip(), second.strip()} <= {second.strip(), *names}
    assert len(names) == 5


@pytest.mark.slow
def test_an_engine_that_is_killed_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    """Five times the program with its engine is killed; the same program continues with what is there."""
    program = """
import sys
import katib

experiment = katib.create(
    "mine", {"x": katib.search.double(-1, 1)}, algorithm="random", max_trials=40, lease_seconds=1, data_dir=sys.argv[1]
)
for trial in experiment.ask_until_done():
    print(trial.name, flush=True)
    trial.tell(trial.parameters["x"])
experiment.close()
"""
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    for number in range(5):
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            for _ in range(1 + number):
                client.stdout.readline()
            os.kill(client.pid, signal.SIGKILL)
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = katib.open("mine", data_dir=tmp_path / "data")

    assert len(result.trials) == 40
    assert {trial.state for trial in result.trials} == {"Succeeded"}
