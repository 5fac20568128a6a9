"""The sidecar with other sources than a file, in pods as a kubelet runs them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from katib.cluster.injection.command import Patience
from katib.cluster.injection.settings import MetricsPath
from tests.support.kubelet import Container, Kubelet
from tests.support.pod_view import pod_command
from tests.support.pods import wrapped_command
from tests.support.ports import free_port
from tests.support.sidecar import TRIAL, Pod, early_stopping, pod_processes
from tests.support.waiting import eventually

COLLECTOR = "metrics-collector"
GRACE_SECONDS = 60.0
"""More than anybody needs who ends when asked to, on a busy machine too."""
SHORT_GRACE_SECONDS = 2.0
"""For tests that want it to be over."""
SHORT_GRACE = {"KATIB_POD_GRACE_SECONDS": str(SHORT_GRACE_SECONDS)}
PROGRAM = str(Path(__file__).parents[1] / "support" / "exporting_program.py")


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with pod_processes(tmp_path) as pod:
        yield pod


@pytest.fixture
def port() -> int:
    return free_port()


def collector(pod: Pod, *arguments: str, native: bool, **environment: str) -> Container:
    """Return the collector's container, with the flags that Katib gives one of an endpoint."""
    flags = ["-t", TRIAL, "-m", "loss", "-o-type", "minimize", "-s-db", pod.address]
    command = pod_command(*flags, *arguments)
    variables = {
        "KATIB_TERMINATION_LOG": str(pod.termination_log),
        "KATIB_POD_RESTART_POLICY": "Never",
        "KATIB_POD_GRACE_SECONDS": str(GRACE_SECONDS),
        "KATIB_NATIVE_SIDECAR": "true" if native else "false",
        "KATIB_POD_UID": "1234",
        **environment,
    }
    return Container(COLLECTOR, command, variables, native=native, termination_log=pod.termination_log)


def endpoint(port: int) -> dict[str, str]:
    return {"KATIB_METRICS_HTTP_GET": json.dumps({"host": "127.0.0.1", "port": port, "path": "/metrics"})}


def markers(pod: Pod) -> Mapping[str, str]:
    return {"KATIB_MARKER_DIRECTORY": str(pod.metrics)}


def program(
    pod: Pod, port: int, *values: str, native: bool, may_stop: bool = False, grace_seconds: float = GRACE_SECONDS
) -> Container:
    """Return the program's container as it is injected."""
    command = [sys.executable, PROGRAM, str(port), *values]
    return injected(command, pod, pod.file, native=native, may_stop=may_stop, grace_seconds=grace_seconds)


def injected(
    command: Sequence[str],
    pod: Pod,
    path: Path,
    *,
    native: bool,
    may_stop: bool = False,
    grace_seconds: float = GRACE_SECONDS,
) -> Container:
    patience = Patience(3600.0, grace_seconds) if native else None
    place = MetricsPath(str(path), str(pod.metrics))
    return Container("main", wrapped_command(command, place, to_file=False, may_stop=may_stop, patience=patience))


def event_writer(pod: Pod, *values: float, native: bool, grace_seconds: float = GRACE_SECONDS) -> Container:
    """Return a program that writes event files with these values."""
    return event_program(pod, f"write({str(pod.metrics)!r}, {list(values)!r})", native, grace_seconds)


def endless_event_writer(pod: Pod, gate: Path) -> Container:
    """Return a program that writes event files with the values 0, 1, 2 and so on until the gate is there.

    It leaves in the gate how many.
    """
    return event_program(pod, f"write_until({str(pod.metrics)!r}, {str(gate)!r})", True, GRACE_SECONDS)


def event_program(pod: Pod, call: str, native: bool, grace_seconds: float) -> Container:
    command = [sys.executable, "-c", f"from tests.support.event_records import *; {call}"]
    return injected(command, pod, pod.metrics, native=native, grace_seconds=grace_seconds)


def running(*containers: Container) -> Kubelet:
    return Kubelet(containers, grace_seconds=GRACE_SECONDS)


def run(*containers: Container) -> Kubelet:
    """Run a pod to its end."""
    with running(*containers) as kubelet:
        kubelet.wait()
    return kubelet


@pytest.mark.parametrize("native", [True, False], ids=["native", "ordinary"])
def test_an_endpoint_is_scraped_to_the_last_value(pod: Pod, port: int, *, native: bool) -> None:
    sidecar = collector(pod, native=native, **endpoint(port), **markers(pod))
    kubelet = run(sidecar, program(pod, port, "0.5", "0.25", native=native))

    assert kubelet.status()["phase"] == "Succeeded"
    assert pod.readings() == ["0.5", "0.25"]
    assert pod.news() == "all readings are stored"


@pytest.mark.parametrize("native", [True, False], ids=["native", "ordinary"])
def test_a_program_that_nobody_wrapped_is_scraped_too(pod: Pod, port: int, *, native: bool) -> None:
    bare = Container("main", [sys.executable, PROGRAM, str(port), "0.5", "0.25"])
    kubelet = run(collector(pod, native=native, **endpoint(port)), bare)

    assert kubelet.status()["phase"] == "Succeeded"
    assert pod.readings() == ["0.5", "0.25"]
    assert pod.news() == "all readings are stored"


def test_a_program_whose_endpoint_never_answers_is_explained(pod: Pod, port: int) -> None:
    ends = injected(["true"], pod, pod.file, native=True)
    run(collector(pod, native=True, **endpoint(port), **markers(pod)), ends)

    assert pod.readings() == ["unavailable"]
    assert f"no answer from http://127.0.0.1:{port}/metrics" in pod.told()


def test_a_scraped_trial_is_stopped_by_its_rules(pod: Pod, port: int) -> None:
    with early_stopping() as (service, address):
        rules = ["-stop-rule", "loss;0.4;greater;1", "-s-earlystop", address]
        sidecar = collector(pod, *rules, native=True, **endpoint(port), **markers(pod))
        forever = [str(0.5 + i / 1000) for i in range(1000)]
        kubelet = run(sidecar, program(pod, port, *forever, native=True, may_stop=True))

        assert service.stopped == [TRIAL]
    assert kubelet.status()["phase"] == "Succeeded"
    assert pod.readings()[0] == "0.5"


@pytest.mark.parametrize(
    "native", [pytest.param(True, id="native"), pytest.param(False, id="ordinary", marks=pytest.mark.slow)]
)
def test_what_was_scraped_waits_for_a_database_that_is_away(pod: Pod, port: int, *, native: bool) -> None:
    pod.database_goes()
    sidecar = collector(pod, native=native, **endpoint(port), **markers(pod), **SHORT_GRACE)
    main = program(pod, port, "0.5", "0.25", native=native, grace_seconds=SHORT_GRACE_SECONDS)
    with running(sidecar, main) as kubelet:
        check_that_the_pod_waits_for_the_database(pod, kubelet)

    assert pod.readings() == ["0.5", "0.25"]


def test_a_stop_signal_leaves_time_for_a_database_that_comes_back(pod: Pod, port: int) -> None:
    """Nothing holds up the pod of a program that nobody wrapped: its collector is told to end meanwhile."""
    pod.database_goes()
    bare = Container("main", [sys.executable, PROGRAM, str(port), "0.5", "0.25"])
    sidecar = collector(pod, native=True, **endpoint(port))
    with running(sidecar, bare) as kubelet:
        eventually(lambda: bare.codes == [0])
        eventually(lambda: not bare.runs)
        pod.database_comes_back()
        kubelet.wait()

    assert sidecar.codes == [0]
    assert pod.readings() == ["0.5", "0.25"]
    assert pod.news() == "all readings are stored"


def check_that_the_pod_waits_for_the_database(pod: Pod, kubelet: Kubelet) -> None:
    """Leave the database away for longer than a short grace period after the end of the program; wait for the pod."""
    eventually(lambda: any("completed" in path.read_text() for path in pod.metrics.glob("*.pid")))
    ended = time.monotonic()
    eventually(lambda: time.monotonic() > ended + SHORT_GRACE_SECONDS + 1.0)
    assert not kubelet.has_ended
    pod.database_comes_back()
    kubelet.wait()
    assert kubelet.status()["phase"] == "Succeeded"
    assert pod.news() == "all readings are stored"


def test_a_collector_that_is_killed_goes_on_with_what_is_new(pod: Pod, port: int) -> None:
    sidecar = collector(pod, native=True, **endpoint(port), **markers(pod))
    values = [str(i) for i in range(1, 5)]
    with running(sidecar, program(pod, port, *values, native=True)) as kubelet:
        eventually(pod.readings)
        kubelet.kill(COLLECTOR)
        kubelet.wait()

    found = [float(value) for value in pod.readings()]
    assert found == sorted(found)
    assert found[-1] == 4.0


# --- event files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False], ids=["by our controller", "by Katib's"])
def test_event_files_are_read_to_the_last_value(pod: Pod, *, told: bool) -> None:
    environment = {"KATIB_COLLECTOR_KIND": "TensorFlowEvent"} if told else {}
    sidecar = collector(pod, "-path", str(pod.metrics), native=True, **environment)
    kubelet = run(sidecar, event_writer(pod, 0.5, 0.25, native=True))

    assert kubelet.status()["phase"] == "Succeeded"
    assert [(log.value, log.step) for log in pod.log.read(TRIAL)] == [("0.5", 1), ("0.25", 2)]
    assert pod.news() == "all readings are stored"


@pytest.mark.parametrize(
    "native", [pytest.param(True, id="native"), pytest.param(False, id="ordinary", marks=pytest.mark.slow)]
)
def test_events_wait_for_a_database_that_is_away(pod: Pod, *, native: bool) -> None:
    pod.database_goes()
    sidecar = collector(pod, "-path", str(pod.metrics), native=native, **SHORT_GRACE)
    main = event_writer(pod, 0.5, 0.25, native=native, grace_seconds=SHORT_GRACE_SECONDS)
    with running(sidecar, main) as kubelet:
        check_that_the_pod_waits_for_the_database(pod, kubelet)

    assert [(log.value, log.step) for log in pod.log.read(TRIAL)] == [("0.5", 1), ("0.25", 2)]


@pytest.mark.slow
def test_a_database_that_goes_in_the_middle_costs_no_event(pod: Pod) -> None:
    values = [i / 8 for i in range(250)]
    sidecar = collector(pod, "-path", str(pod.metrics), native=True, **SHORT_GRACE)
    main = event_writer(pod, *values, native=True, grace_seconds=SHORT_GRACE_SECONDS)
    with running(sidecar, main) as kubelet:
        eventually(pod.readings)
        pod.database_goes()
        check_that_the_pod_waits_for_the_database(pod, kubelet)

    assert list(map(float, pod.readings())) == values


def test_a_directory_without_event_files_is_explained(pod: Pod) -> None:
    run(collector(pod, "-path", str(pod.metrics), native=False), event_writer(pod, native=False))

    assert pod.readings() == ["unavailable"]
    assert "no event file below" in pod.told()


@pytest.mark.parametrize("stored", [False, True], ids=["before-it-is-stored", "after-it-is-stored"])
@pytest.mark.parametrize("at", [1, pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_collector_of_event_files_that_is_killed_during_a_report_goes_on_where_it_was(
    pod: Pod, at: int, *, stored: bool
) -> None:
    gate = pod.metrics.parent / "gate"

    def kill() -> None:
        kubelet.kill(COLLECTOR)
        gate.touch()

    pod.lose_answer(at, kill, stored=stored)
    sidecar = collector(pod, "-path", str(pod.metrics), native=True)
    with running(sidecar, endless_event_writer(pod, gate)) as kubelet:
        kubelet.wait()

    assert sidecar.codes == [137, 0]
    assert sorted(map(float, pod.readings())) == list(range(int(gate.read_text())))


def test_a_collector_of_event_files_that_is_killed_stores_every_event_once(pod: Pod) -> None:
    sidecar = collector(pod, "-path", str(pod.metrics), native=True)
    values = [i / 8 for i in range(100)]
    with running(sidecar, event_writer(pod, *values, native=True)) as kubelet:
        for count in (1, 20, 40):
            eventually(lambda count=count: len(pod.readings()) >= count)  # type: ignore[misc]
            if sidecar.process is not None:
                sidecar.process.kill()
        kubelet.wait()

    assert sorted(map(float, pod.readings())) == values
