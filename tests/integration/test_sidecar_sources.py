"""The sidecar with other sources than a file, in pods as a kubelet runs them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.kubelet import Container, Kubelet
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


def collector(pod: Pod, *arguments: str, **environment: str) -> Container:
    """Return the collector's container, with the flags that Katib gives one of an endpoint."""
    flags = ["-t", TRIAL, "-m", "loss", "-o-type", "minimize", "-s-db", pod.address]
    variables = {
        "KATIB_TERMINATION_LOG": str(pod.termination_log),
        "KATIB_POD_GRACE_SECONDS": str(GRACE_SECONDS),
        "KATIB_LAUNCHER_DIRECTORY": str(pod.launcher),
        "KATIB_PROGRAM_ALONE": "true",
        "KATIB_POD_UID": "1234",
        **environment,
    }
    command = [sys.executable, "-m", "metrics_collector", *flags, *arguments]
    return Container(COLLECTOR, command, variables, native=True, termination_log=pod.termination_log)


def endpoint(port: int) -> dict[str, str]:
    return {"KATIB_METRICS_HTTP_GET": json.dumps({"host": "127.0.0.1", "port": port, "path": "/metrics"})}


def program(pod: Pod, port: int, *values: str, grace_seconds: float = GRACE_SECONDS) -> Container:
    """Return the program's container as it is injected."""
    return injected([sys.executable, PROGRAM, str(port), *values], pod, grace_seconds)


def injected(command: Sequence[str], pod: Pod, grace_seconds: float = GRACE_SECONDS) -> Container:
    launched = pod.launched(*command, to_file=False, grace_seconds=grace_seconds, patience_seconds=3600.0)
    return Container("main", launched)


def event_writer(pod: Pod, *values: float, grace_seconds: float = GRACE_SECONDS) -> Container:
    """Return a program that writes event files with these values."""
    return event_program(pod, f"write({str(pod.metrics)!r}, {list(values)!r})", grace_seconds)


def endless_event_writer(pod: Pod, gate: Path) -> Container:
    """Return a program that writes event files with the values 0, 1, 2 and so on until the gate is there.

    It leaves in the gate how many.
    """
    return event_program(pod, f"write_until({str(pod.metrics)!r}, {str(gate)!r})", GRACE_SECONDS)


def event_program(pod: Pod, call: str, grace_seconds: float) -> Container:
    command = [sys.executable, "-c", f"from tests.support.event_records import *; {call}"]
    return injected(command, pod, grace_seconds)


def running(*containers: Container) -> Kubelet:
    return Kubelet(containers, grace_seconds=GRACE_SECONDS)


def run(*containers: Container) -> Kubelet:
    """Run a pod to its end."""
    with running(*containers) as kubelet:
        kubelet.wait()
    return kubelet


def test_an_endpoint_is_scraped_to_the_last_value(pod: Pod, port: int) -> None:
    assert run(collector(pod, **endpoint(port)), program(pod, port, "0.5", "0.25")).status()["phase"] == "Succeeded"
    assert pod.readings() == ["0.5", "0.25"]
    assert pod.news() == "all readings are stored"


def test_a_program_whose_endpoint_never_answers_is_explained(pod: Pod, port: int) -> None:
    ends = injected(["true"], pod)
    run(collector(pod, **endpoint(port)), ends)

    assert pod.readings() == ["unavailable"]
    assert f"no answer from http://127.0.0.1:{port}/metrics" in pod.told()


def test_a_scraped_trial_is_stopped_by_its_rules(pod: Pod, port: int) -> None:
    with early_stopping() as (service, address):
        rules = ["-stop-rule", "loss;0.4;greater;1", "-s-earlystop", address]
        sidecar = collector(pod, *rules, **endpoint(port))
        kubelet = run(sidecar, program(pod, port, *[str(0.5 + i / 1000) for i in range(1000)]))

        assert service.stopped == [TRIAL]
    assert kubelet.status()["phase"] == "Succeeded"
    assert pod.readings()[0] == "0.5"


def test_what_was_scraped_waits_for_a_database_that_is_away(pod: Pod, port: int) -> None:
    pod.database_goes()
    sidecar = collector(pod, **endpoint(port), **SHORT_GRACE)
    main = program(pod, port, "0.5", "0.25", grace_seconds=SHORT_GRACE_SECONDS)
    with running(sidecar, main) as kubelet:
        check_that_the_pod_waits_for_the_database(pod, kubelet)

    assert pod.readings() == ["0.5", "0.25"]


def check_that_the_pod_waits_for_the_database(pod: Pod, kubelet: Kubelet) -> None:
    """Leave the database away for longer than a short grace period after the end of the program; wait for the pod."""
    eventually(lambda: pod.state() == "completed 0")
    ended = time.monotonic()
    eventually(lambda: time.monotonic() > ended + SHORT_GRACE_SECONDS + 1.0)
    assert not kubelet.has_ended
    pod.database_comes_back()
    kubelet.wait()
    assert kubelet.status()["phase"] == "Succeeded"
    assert pod.news() == "all readings are stored"


def test_a_collector_that_is_killed_goes_on_with_what_is_new(pod: Pod, port: int) -> None:
    sidecar = collector(pod, **endpoint(port))
    values = [str(i) for i in range(1, 5)]
    with running(sidecar, program(pod, port, *values)) as kubelet:
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
    sidecar = collector(pod, "-path", str(pod.metrics), **environment)

    assert run(sidecar, event_writer(pod, 0.5, 0.25)).status()["phase"] == "Succeeded"
    assert [(log.value, log.step) for log in pod.log.read(TRIAL)] == [("0.5", 1), ("0.25", 2)]
    assert pod.news() == "all readings are stored"


def test_events_wait_for_a_database_that_is_away(pod: Pod) -> None:
    pod.database_goes()
    sidecar = collector(pod, "-path", str(pod.metrics), **SHORT_GRACE)
    main = event_writer(pod, 0.5, 0.25, grace_seconds=SHORT_GRACE_SECONDS)
    with running(sidecar, main) as kubelet:
        check_that_the_pod_waits_for_the_database(pod, kubelet)

    assert [(log.value, log.step) for log in pod.log.read(TRIAL)] == [("0.5", 1), ("0.25", 2)]


@pytest.mark.slow
def test_a_database_that_goes_in_the_middle_costs_no_event(pod: Pod) -> None:
    values = [i / 8 for i in range(250)]
    sidecar = collector(pod, "-path", str(pod.metrics), **SHORT_GRACE)
    main = event_writer(pod, *values, grace_seconds=SHORT_GRACE_SECONDS)
    with running(sidecar, main) as kubelet:
        eventually(pod.readings)
        pod.database_goes()
        check_that_the_pod_waits_for_the_database(pod, kubelet)

    assert list(map(float, pod.readings())) == values


def test_a_directory_without_event_files_is_explained(pod: Pod) -> None:
    run(collector(pod, "-path", str(pod.metrics)), event_writer(pod))

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
    sidecar = collector(pod, "-path", str(pod.metrics))
    with running(sidecar, endless_event_writer(pod, gate)) as kubelet:
        kubelet.wait()

    assert sidecar.codes == [137, 0]
    assert sorted(map(float, pod.readings())) == list(range(int(gate.read_text())))


def test_a_collector_of_event_files_that_is_killed_stores_every_event_once(pod: Pod) -> None:
    sidecar = collector(pod, "-path", str(pod.metrics))
    values = [i / 8 for i in range(100)]
    with running(sidecar, event_writer(pod, *values)) as kubelet:
        for count in (1, 20, 40):
            eventually(lambda count=count: len(pod.readings()) >= count)  # type: ignore[misc]
            if sidecar.process is not None:
                sidecar.process.kill()
        kubelet.wait()

    assert sorted(map(float, pod.readings())) == values
