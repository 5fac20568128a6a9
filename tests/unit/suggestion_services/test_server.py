"""The process: up at once, silent, gone at once; and the errors it can start with."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from katib.errors import TerminalError
from katib.wire.rpc import clients
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.services import calls_over
from suggestion_services.algorithms import find_entry
from suggestion_services.base.servicer import EXHAUSTED_METADATA
from suggestion_services.server import _entries, _parser
from tests.support.golden import Golden
from tests.support.processes import Launch, signal_another_thread
from tests.support.refusals import INVALID, refusal
from tests.support.suggestion import Service, a_trial, an_experiment, served_here

SERVING = 1
PATIENCE_SECONDS = 60.0


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(launch: Launch) -> Start:
    """Start a service: `start(algorithm, address, *options)`."""

    def start_one(algorithm: str, address: str, *options: str) -> subprocess.Popen[str]:
        which = ["--algorithm", algorithm] if algorithm else []
        service = [sys.executable, "-m", "suggestion_services", *which, "--address", address]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return launch([*service, *options], text=True, **pipes)

    return start_one


def end_of_input(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None


@contextmanager
def running(start: Start, folder: Path, algorithm: str, *options: str) -> Iterator[Service]:
    """Start a service that serves, and end it, after which it has written nothing."""
    process = start(algorithm, f"unix:{folder}/s", *options)
    with grpc.insecure_channel(f"unix:{folder}/s") as channel:
        service = Service(channel)
        assert service.health() == SERVING
        yield service
    process.terminate()
    assert process.communicate(timeout=PATIENCE_SECONDS) == ("", "")


def ask_once(algorithm: str, address: str) -> None:
    # With a pool of its own: in the one of the process, a connection to a killed service may not know yet.
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        service = Service(channel)
        assert service.health("manager.v1beta1.Suggestion") == SERVING
        experiment = an_experiment(algorithm, settings={} if algorithm == "random" else {"n_initial_points": 2})
        trials = [a_trial(f"t{i}", {"x": "0.5", "y": "0.5"}, "nan" if i == 3 else 1) for i in range(5)]
        assert len(service.ask(experiment, trials, count=3)) == 3


def test_one_process_serves_all_early_stopping_algorithms(start: Start, tmp_path: Path) -> None:
    with running(start, tmp_path, "", "--early-stopping") as service:
        stub = calls_over(service.channel, pb)
        for name in ("medianstop", "asha"):
            spec = pb.EarlyStoppingSpec(algorithm_name=name)
            stub.ValidateEarlyStoppingSettings(pb.ValidateEarlyStoppingSettingsRequest(early_stopping=spec), timeout=60)


@pytest.mark.parametrize("algorithm", ["random", "bayesianoptimization"])
def test_a_service_prints_nothing_and_stops_at_the_end_of_its_input(
    start: Start, algorithm: str, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/s"
    process = start(algorithm, address, "--exit-with-stdin")
    ask_once(algorithm, address)
    end_of_input(process)

    assert process.communicate(timeout=PATIENCE_SECONDS) == ("", "")
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("send", [os.kill, signal_another_thread], ids=["any-thread", "another-thread"])
def test_a_service_stops_promptly_on_a_signal(
    start: Start, send: Callable[[int, int], None], number: signal.Signals, tmp_path: Path
) -> None:
    """A signal that comes to another thread, or before the service waits, is not lost."""
    address = f"unix:{tmp_path}/s"
    process = start("random", address)
    ask_once("random", address)
    send(process.pid, number)

    assert process.communicate(timeout=PATIENCE_SECONDS) == ("", "")
    assert process.returncode == 0


def test_without_the_option_the_end_of_input_means_nothing(start: Start, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    process = start("random", address)
    end_of_input(process)
    ask_once("random", address)

    assert process.poll() is None

    process.terminate()
    process.communicate(timeout=PATIENCE_SECONDS)


def test_a_socket_left_by_a_killed_service_is_taken_over(start: Start, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    for _ in range(2):
        process = start("random", address)
        ask_once("random", address)
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)

    assert (tmp_path / "s").exists()


def test_a_port_in_use_is_one_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start("random", address)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    expected = f"--address: cannot listen on {address}; choose a free port or a path in a writable folder"
    assert out == ""
    assert err.splitlines()[-1] == expected
    assert process.returncode == 1


def test_a_misspelt_algorithm_is_one_line_with_the_right_spelling(start: Start, golden: Golden) -> None:
    process = start("randm", "127.0.0.1:0")

    golden(process.communicate(timeout=PATIENCE_SECONDS)[1])
    assert process.returncode == 2


def test_a_missing_package_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(TerminalError) as caught:
        find_entry("bayesianoptimization").check_installed()

    expected = "the package skopt is missing; run pip install scikit-optimize"
    assert str(caught.value) == f"bayesianoptimization: {expected}"


@pytest.mark.parametrize(
    ("name", "known"),
    [("", True), ("manager.v1beta1.Suggestion", True), ("manager.v1beta1.Other", False)],
    ids=["empty", "of-the-probe", "foreign"],
)
def test_health_knows_its_own_names_only(name: str, *, known: bool) -> None:
    with served_here("random") as service:
        if known:
            assert service.health(name) == SERVING
        else:
            assert refusal(service.health, name)[0] == grpc.StatusCode.NOT_FOUND


def test_an_unknown_algorithm_is_refused_literally() -> None:
    with served_here("random") as service:
        refused = refusal(service.validate, an_experiment("hyperband"))

    assert refused == (INVALID, "unknown algorithm name hyperband")


def test_requests_larger_than_the_default_limit_are_received() -> None:
    point = {"x": "0.5", "y": "0.5"}
    trials = [a_trial(f"t{i}" + "n" * 1000, point, 1) for i in range(5000)]

    with served_here("tpe") as service:
        assert len(service.ask(an_experiment("tpe"), trials)) == 1


def test_both_sides_mean_the_same_sign_for_an_exhausted_space() -> None:
    assert EXHAUSTED_METADATA == (clients.SEARCH_SPACE_KEY, clients.EXHAUSTED)


def children_seconds(action: Callable[[], object]) -> float:
    """Return the processor time of the processes that an action starts and ends."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    action()
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


def test_a_random_service_takes_a_fraction_of_a_second_to_start(start: Start, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"

    def up() -> None:
        process = start("random", address)
        while not Path(f"{tmp_path}/s").exists():
            assert process.poll() is None
            time.sleep(0.002)
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)

    # The product aims at 0.3 s; a library of an algorithm that is imported by mistake takes a second and more.
    assert min(children_seconds(up) for _ in range(3)) < 1


def test_one_process_serves_several_algorithms(start: Start, tmp_path: Path) -> None:
    with running(start, tmp_path, "random", "--algorithm", "sobol") as service:
        points = [service.ask(an_experiment(name), count=2) for name in ("random", "sobol")]
        refused = refusal(service.ask, an_experiment("tpe"))

    assert points[0] != points[1]
    assert refused == (INVALID, "unknown algorithm name tpe")


def test_an_image_without_arguments_serves_all_suggestion_algorithms(start: Start, tmp_path: Path) -> None:
    """The command of `images/suggestion`, with another address."""
    with running(start, tmp_path, "", "--suggestion") as service:
        for name in ("random", "tpe", "cmaes"):
            assert len(service.ask(an_experiment(name), count=2)) == 2


def test_a_service_that_is_told_no_algorithm_says_what_to_name(start: Start) -> None:
    process = start("", "127.0.0.1:0")
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert err.splitlines()[-1].endswith("name what to serve with --algorithm, --suggestion or --early-stopping")
    assert process.returncode == 2


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (["--algorithm", "hyperband", "--early-stopping"], [True]),
        (["--algorithm", "medianstop", "--algorithm", "asha"], [True, True]),
        (["--algorithm", "asha"], [False]),
        (["--algorithm", "grid", "--algorithm", "grid"], [False]),
    ],
    ids=["of-a-kind", "one-known-as-one-kind-only", "of-both-kinds", "twice"],
)
def test_a_name_is_looked_up_within_its_kind(options: list[str], kinds: list[bool]) -> None:
    parsed = _parser().parse_args([*options, "--address", "127.0.0.1:0"])

    assert [entry.info.early_stopping for entry in _entries(parsed)] == kinds
