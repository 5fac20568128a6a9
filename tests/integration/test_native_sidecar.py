"""Collector and program as a kubelet runs them, with others' sidecars around them."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from katib.engine.controllers.trial.plan import JobView, Judgment, Observed, plan_trial
from katib.places.cluster.pods.reading import facts_of
from metrics_collector.reporter import MAX_WAITING
from tests.support.kubelet import Container, Kubelet
from tests.support.planning import NOW, holding, trial
from tests.support.sidecar import TRIAL, Pod, early_stopping, pod_processes
from tests.support.waiting import eventually

COLLECTOR = "metrics-logger-and-collector"
GRACE_SECONDS = 60.0
"""More than anybody needs who ends when asked to, on a busy machine too."""
SHORT_GRACE_SECONDS = 2.0
"""For tests that want it to be over."""

ENDS_WHEN_ASKED = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.02; done")
NEVER_ENDS = ("sh", "-c", "trap '' TERM; while :; do sleep 0.02; done")


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with pod_processes(tmp_path) as pod:
        yield pod


def program(
    pod: Pod, *command: str, seconds: float = 3600.0, grace_seconds: float = GRACE_SECONDS, **fields: Any
) -> Container:
    """Return the program's container as it is injected; `seconds` is the collector's patience."""
    launched = pod.launched(*command, grace_seconds=grace_seconds, patience_seconds=seconds)
    return Container("main", launched, **fields)


def collector(
    pod: Pod,
    *arguments: str,
    policy: str = "Never",
    program: Mapping[str, Any] | None = None,
    seconds: float = 3600.0,
    alone: bool = True,
    grace_seconds: float = GRACE_SECONDS,
) -> Container:
    """Return the collector's container as it is injected, with the default of `-w`."""
    flags = ["-t", TRIAL, "-m", "loss;accuracy", "-o-type", "minimize", "-s-db", pod.address]
    flags += ["-path", str(pod.file), "-format", "TEXT", *arguments]
    environment = {
        "KATIB_TERMINATION_LOG": str(pod.termination_log),
        "KATIB_POD_RESTART_POLICY": policy,
        "KATIB_PROGRAM_RESTART": json.dumps(program or {}),
        "KATIB_POD_GRACE_SECONDS": str(grace_seconds),
        "KATIB_LAUNCHER_DIRECTORY": str(pod.launcher),
        "KATIB_PROGRAM_ALONE": "true" if alone else "false",
        "KATIB_GIVE_UP_SECONDS": str(seconds),
        "KATIB_POD_UID": "1234",
    }
    command = [sys.executable, "-m", "metrics_collector", *flags]
    return Container(COLLECTOR, command, environment, native=True, termination_log=pod.termination_log)


def running(*containers: Container, grace_seconds: float = GRACE_SECONDS, **fields: object) -> Kubelet:
    return Kubelet(containers, grace_seconds=grace_seconds, **fields)  # type: ignore[arg-type]  # its own keywords


def verdict(pod: Pod, kubelet: Kubelet) -> tuple[str, str]:
    """Return what becomes of the trial: its last condition, judged by the pod's status and by what is stored."""
    labels = {"katib.kubeflow.org/trial": TRIAL}
    metadata = {"name": "p", "namespace": "n", "labels": labels}
    facts = facts_of({"metadata": metadata, "spec": kubelet.spec(), "status": kubelet.status()})
    view = JobView(
        succeeded=Judgment() if kubelet.status()["phase"] == "Succeeded" else None,
        failed=Judgment() if kubelet.status()["phase"] == "Failed" else None,
        ended_at=NOW,
        collecting=facts.collecting,
        incomplete="" if facts.has_failed else facts.incomplete,
        lost=facts.incomplete if facts.has_failed else "",
        last_failure=facts.failure,
    )
    started = trial("t", holding("Created"), holding("Running"))
    reading = pod.log.summarize(TRIAL, ["loss"])
    condition = plan_trial(Observed(started, view, reading, now=NOW)).status.conditions[-1]
    return condition.type, condition.message


# --- storing before the end -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_pod_waits_for_a_database_that_is_away_longer_than_the_grace_period(pod: Pod) -> None:
    pod.database_goes()
    main = program(pod, "sh", "-c", "echo loss=0.5; echo loss=0.4", grace_seconds=SHORT_GRACE_SECONDS)
    with running(collector(pod, grace_seconds=SHORT_GRACE_SECONDS), main) as kubelet:
        eventually(lambda: pod.state() in {"completed 0", "stopped 0"})
        ended = time.monotonic()
        eventually(lambda: time.monotonic() > ended + SHORT_GRACE_SECONDS + 1.0)
        assert not kubelet.has_ended
        pod.database_comes_back()
        kubelet.wait()

        assert pod.readings() == ["0.5", "0.4"]
        assert kubelet.status()["phase"] == "Succeeded"
        assert pod.news() == "all readings are stored"


@pytest.mark.slow
def test_a_flood_of_readings_is_stored_to_the_last_line(pod: Pod) -> None:
    count = 2 * MAX_WAITING  # more than the collector holds, so that it has to slow the program down
    flood = f"print(''.join(f'loss={{i}}\\n' for i in range({count})), end='')"
    with running(collector(pod), program(pod, sys.executable, "-c", flood)) as kubelet:
        kubelet.wait(240)

    assert kubelet.status()["phase"] == "Succeeded"
    assert pod.readings() == [str(i) for i in range(count)]
    assert pod.news() == "all readings are stored"


def test_a_short_program_ends_soon_after_the_collector_is_there(pod: Pod) -> None:
    sidecar = collector(pod)
    with running(sidecar, program(pod, "echo", "loss=0.5"), look_seconds=60.0) as kubelet:
        kubelet.wait()

    assert (sidecar.codes, pod.readings()) == ([0], ["0.5"])  # it ended by itself
    assert verdict(pod, kubelet)[0] == "Succeeded"


def test_a_collector_that_gives_up_lets_the_pod_go_and_says_so(pod: Pod) -> None:
    pod.database_goes()
    sidecar = collector(pod, seconds=1.0)
    with running(sidecar, program(pod, "echo", "loss=0.5", seconds=1.0)) as kubelet:
        kubelet.wait()

    assert kubelet.status()["phase"] == "Succeeded"
    assert pod.news().startswith("not all readings are stored: 1 readings could not be stored: DB manager")
    assert sidecar.codes == [1]
    condition, message = verdict(pod, kubelet)
    assert condition == "MetricsUnavailable"
    assert message.startswith("Metrics are not complete: not all readings are stored: 1 readings could not be stored")


def test_a_collector_that_is_killed_for_good_makes_no_success_of_a_part(pod: Pod) -> None:
    gate = pod.metrics / "gate"
    wait = f"echo loss=0.5; while ! [ -e {gate} ]; do sleep 0.05; done; echo loss=0.1"
    main = program(pod, "sh", "-c", wait, seconds=-59.0)  # a second with those that are spare
    with running(collector(pod), main, restart_seconds=60.0) as kubelet:
        eventually(lambda: pod.readings() == ["0.5"])
        kubelet.kill(COLLECTOR)
        gate.touch()
        kubelet.wait()

    condition, message = verdict(pod, kubelet)
    assert pod.readings() == ["0.5"]
    assert condition == "MetricsUnavailable"
    assert message == f"Metrics are not complete: container {COLLECTOR} in pod p ended with exit code 137"


def test_a_program_whose_collector_never_comes_ends_when_the_patience_is_over(pod: Pod) -> None:
    dead = Container(COLLECTOR, ["false"], native=True)
    impatient = program(pod, "echo", "loss=0.5", seconds=-58.0)  # two seconds with those that are spare
    with running(dead, impatient) as kubelet:
        kubelet.wait()

    assert impatient.codes == [0]


def heeds_sigterm(container: Container) -> bool:
    """Return whether the process of a container has come so far that it handles SIGTERM."""
    if container.process is None:
        return False
    status = Path(f"/proc/{container.process.pid}/status").read_text()
    (handled,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(handled, 16) >> (signal.SIGTERM - 1) & 1)


def test_a_pod_that_is_deleted_while_it_waits_ends_within_its_grace_period_and_is_no_success(pod: Pod) -> None:
    pod.database_goes()
    main = program(pod, "echo", "loss=0.5", grace_seconds=SHORT_GRACE_SECONDS)
    sidecar = collector(pod, grace_seconds=SHORT_GRACE_SECONDS)
    with running(sidecar, main) as kubelet:  # which kills nobody soon: they heed the period that they are told
        eventually(lambda: pod.state() in {"completed 0", "stopped 0"})
        eventually(lambda: heeds_sigterm(sidecar))
        kubelet.delete()
        kubelet.wait()

    assert main.codes == [143]  # not killed at the end of the period
    assert sidecar.codes == [1]
    assert pod.news().startswith("not all readings are stored")


def test_a_program_that_fails_is_not_waited_for(pod: Pod) -> None:
    pod.database_goes()
    main = program(pod, "sh", "-c", "echo loss=0.5; exit 3")
    with running(collector(pod, grace_seconds=SHORT_GRACE_SECONDS), main) as kubelet:
        kubelet.wait()

    assert main.codes == [3]
    assert kubelet.status()["phase"] == "Failed"


def test_a_program_that_fails_and_runs_again_is_collected_from_in_all_its_runs(pod: Pod) -> None:
    once = f"[ -e {pod.metrics}/tried ] || {{ touch {pod.metrics}/tried; exit 1; }}"
    again = f"if [ -e {pod.metrics}/tried ]; then echo loss=0.2; else echo loss=0.1; fi; {once}"
    main = program(pod, "sh", "-c", again)
    with running(collector(pod, policy="OnFailure"), main, restart_policy="OnFailure") as kubelet:
        kubelet.wait()

    assert main.codes == [1, 0]
    assert pod.readings() == ["0.1", "0.2"]


def rules(action: str, *codes: int, policy: str = "Never") -> dict[str, Any]:
    rule = {"action": action, "exitCodes": {"operator": "In", "values": list(codes)}}
    return {"restartPolicy": policy, "restartPolicyRules": [rule]}


@pytest.mark.parametrize(
    ("own", "fields"),
    [
        (rules("Restart", 3), {"again": [3]}),
        ({"restartPolicy": "OnFailure"}, {"again": range(1, 256)}),
        (rules("RestartAllContainers", 3), {"all_again": [3]}),
    ],
    ids=["rule", "policy", "all"],
)
def test_a_program_whose_container_runs_again_by_its_own_rules_is_collected_from_in_all_its_runs(
    pod: Pod, own: dict[str, Any], fields: dict[str, Any]
) -> None:
    gate = pod.metrics / "gate"
    once = f"[ -e {gate} ] || {{ echo loss=1; while ! [ -e {gate} ]; do sleep 0.05; done; exit 3; }}"
    main = program(pod, "sh", "-c", f"{once}; echo loss=2; echo loss=99")
    main = replace(main, **fields)
    sidecar = collector(pod, program=own)
    with running(main, sidecar, restart_seconds=1.0) as kubelet:  # time for a collector that would end
        eventually(lambda: pod.readings() == ["1"])
        gate.touch()
        kubelet.wait()

    assert main.codes == [3, 0]
    assert pod.readings() == ["1", "2", "99"]
    assert verdict(pod, kubelet)[0] == "Succeeded"


def test_a_program_that_fails_otherwise_than_its_rules_say_has_ended(pod: Pod) -> None:
    gate = pod.metrics / "gate"
    wait = f"echo loss=1; while ! [ -e {gate} ]; do sleep 0.05; done; exit 4"
    main = replace(program(pod, "sh", "-c", wait), again=[3])
    with running(main, collector(pod, program=rules("Restart", 3))) as kubelet:
        eventually(lambda: pod.readings() == ["1"])
        gate.touch()
        kubelet.wait()

    assert (main.codes, pod.readings()) == ([4], ["1"])
    assert pod.news().splitlines()[0] == "all readings are stored"


def test_a_program_that_another_container_has_run_again_is_collected_from_again(pod: Pod) -> None:
    """The collector sees the end of the first run only, and continues."""
    tried = pod.metrics / "tried"
    main = program(pod, "sh", "-c", f"echo loss=1; ! [ -e {tried} ] || echo loss=99")
    stored = f"while ! grep -qs stored {pod.termination_log}; do sleep 0.02; done"
    watch = ["sh", "-c", f"[ -e {tried} ] && exit 0; {stored}; touch {tried}; exit 88"]
    sidecar, watcher = collector(pod, alone=False), Container("watcher", watch, all_again=[88])
    with running(sidecar, main, watcher, restart_seconds=1.5) as kubelet:  # the collector comes long before the program
        kubelet.wait()

    assert (len(main.codes), main.codes[-1]) == (2, 0)  # a launcher that still waits for its collector is killed
    assert (verdict(pod, kubelet)[0], pod.readings()) == ("Succeeded", ["1", "1", "99"])


def test_a_program_that_is_stopped_early_is_told_of_before_the_pod_ends(pod: Pod) -> None:
    with early_stopping() as (service, address):
        rule = ("-stop-rule", "loss;1;greater;2", "-s-earlystop", address, "-o-type", "", "-m", "accuracy;loss")
        main = program(pod, "sh", "-c", "echo loss=0.5; echo loss=2; sleep 60")
        with running(collector(pod, *rule), main) as kubelet:
            eventually(lambda: kubelet.has_ended or service.stopped == [TRIAL])
            told_in_time = service.stopped == [TRIAL]
            kubelet.wait()

    assert told_in_time
    assert main.codes == [0]
    assert pod.readings() == ["0.5", "2"]


def test_a_native_sidecar_ends_by_itself_when_its_pod_runs_nothing_else(pod: Pod) -> None:
    """So a kubelet finds program and sidecar ended at one look, and the pod is over a second earlier."""
    sidecar = collector(pod)
    with running(sidecar, program(pod, "echo", "loss=0.5"), look_seconds=60.0) as kubelet:
        kubelet.wait()

    assert (sidecar.signals, sidecar.codes) == ([], [0])
    assert (pod.readings(), pod.news()) == (["0.5"], "all readings are stored")


def test_a_native_sidecar_waits_for_its_signal_beside_another_container(pod: Pod) -> None:
    sidecar = collector(pod, alone=False)
    longer = f"while ! grep -qs stored {pod.termination_log}; do sleep 0.02; done; sleep 0.5"
    with running(sidecar, program(pod, "echo", "loss=0.5"), Container("other", ["sh", "-c", longer])) as kubelet:
        kubelet.wait()

    assert sidecar.codes == [0]  # it was not started again
    assert (pod.readings(), pod.news()) == (["0.5"], "all readings are stored")


def test_a_sidecar_that_does_not_know_of_another_container_ends_once_and_then_waits(pod: Pod) -> None:
    """The container of a mesh, which another webhook has added behind ours."""
    sidecar, other = collector(pod), Container("other", ENDS_WHEN_ASKED)
    with running(sidecar, program(pod, "echo", "loss=0.5"), other) as kubelet:
        eventually(lambda: sidecar.codes == [0] and sidecar.runs)
        eventually(lambda: pod.news() == "all readings are stored")
        with pytest.raises(AssertionError):
            kubelet.wait(2)
        assert sidecar.codes == [0]
        assert other.process is not None
        other.process.terminate()
        kubelet.wait()

    assert (sidecar.codes, pod.readings()) == ([0, 0], ["0.5"])


# --- other sidecars ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["before", "after"])
def test_another_native_sidecar_costs_no_time(pod: Pod, where: str) -> None:
    other, own = Container("proxy", ENDS_WHEN_ASKED, native=True), collector(pod)
    sidecars = [other, own] if where == "before" else [own, other]
    with running(*sidecars, program(pod, "echo", "loss=0.5")) as kubelet:
        kubelet.wait()

    assert (other.codes, own.codes) == ([0], [0])  # nobody was killed at the end of the grace period
    assert pod.readings() == ["0.5"]
    assert pod.news() == "all readings are stored"


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_native_sidecar_that_never_ends_costs_its_grace_period_and_no_reading(pod: Pod, where: str) -> None:
    other = Container("proxy", NEVER_ENDS, native=True)
    sidecars = [other, collector(pod)] if where == "before" else [collector(pod), other]
    with running(*sidecars, program(pod, "echo", "loss=0.5"), grace_seconds=SHORT_GRACE_SECONDS) as kubelet:
        kubelet.wait()

    assert other.codes == [137]
    assert pod.readings() == ["0.5"]
    assert pod.news() == "all readings are stored"


# --- a collector that is killed ---------------------------------------------------------------------------------------


def talkative(pod: Pod, gate: Path) -> Container:
    """Return a program that prints readings until the gate is there."""
    loop = f"i=0; while ! [ -e {gate} ]; do i=$((i+1)); echo loss=$i; echo accuracy=0.9; sleep 0.05; done"
    return program(pod, "sh", "-c", loop)


def check_that_nothing_is_lost_or_doubled(pod: Pod) -> None:
    count = pod.file.read_text().count("loss=")
    assert pod.readings() == [str(i) for i in range(1, count + 1)]
    assert pod.readings("accuracy") == ["0.9"] * count


@pytest.mark.parametrize("stored", [False, True], ids=["before-it-is-stored", "after-it-is-stored"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_collector_that_is_killed_during_a_report_goes_on_where_it_was(pod: Pod, at: int, *, stored: bool) -> None:
    gate = pod.metrics / "gate"

    def kill() -> None:
        kubelet.kill(COLLECTOR)
        gate.touch()

    pod.lose_answer(at, kill, stored=stored)
    sidecar = collector(pod)
    with running(sidecar, talkative(pod, gate)) as kubelet:
        kubelet.wait()

    assert sidecar.codes == [137, 0]
    check_that_nothing_is_lost_or_doubled(pod)


@pytest.mark.slow
def test_a_collector_that_is_killed_again_and_again_loses_and_doubles_nothing(pod: Pod) -> None:
    gate, sidecar = pod.metrics / "gate", collector(pod)
    with running(sidecar, talkative(pod, gate)) as kubelet:
        for delay in (0.0, 0.7, 1.4, 2.1, 1.0):
            began = time.monotonic()
            eventually(lambda began=began, delay=delay: time.monotonic() >= began + delay)
            kubelet.kill(COLLECTOR)
        gate.touch()
        kubelet.wait()

    assert sidecar.codes == [137] * 5 + [0]
    check_that_nothing_is_lost_or_doubled(pod)


def test_a_report_whose_answer_is_lost_is_not_stored_twice(pod: Pod) -> None:
    gate = pod.metrics / "gate"
    pod.lose_answer(1, gate.touch, stored=True)
    with running(collector(pod), talkative(pod, gate)) as kubelet:
        kubelet.wait()

    check_that_nothing_is_lost_or_doubled(pod)


def test_a_collector_that_is_killed_while_it_stops_the_program_stops_it_all_the_same(pod: Pod) -> None:
    with early_stopping() as (service, address):
        service.refusals = 1_000
        rule = ("-stop-rule", "loss;1;greater;2", "-s-earlystop", address, "-o-type", "", "-m", "accuracy;loss")
        main = program(pod, "sh", "-c", "echo loss=0.5; echo loss=2; sleep 60")
        with running(collector(pod, *rule), main) as kubelet:
            eventually(lambda: pod.state() in {"completed 0", "stopped 0"})
            eventually(lambda: pod.readings() == ["0.5", "2"])
            kubelet.kill(COLLECTOR)
            service.refusals = 0
            kubelet.wait()

    assert service.stopped == [TRIAL]
    assert main.codes == [0]
    assert pod.readings() == ["0.5", "2"]


def test_an_explanation_survives_the_collector_that_found_it(pod: Pod) -> None:
    gate = pod.metrics / "gate"
    talk = f"echo accuracy=0.9; echo Loss: 0.3; while ! [ -e {gate} ]; do sleep 0.05; done"
    with running(collector(pod), program(pod, "sh", "-c", talk)) as kubelet:
        eventually(lambda: pod.readings("accuracy") == ["0.9"])
        kubelet.kill(COLLECTOR)
        gate.touch()
        kubelet.wait()

    assert pod.readings() == ["unavailable"]
    assert pod.readings("accuracy") == ["0.9"]
    assert 'nearest: "Loss: 0.3"' in pod.news()
