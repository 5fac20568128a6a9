"""Several engines on one machine: real processes, real locks, cards that only have names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.engine.runtime.clock import SystemClock
from katib.model.loadable import Deferred
from katib.model.types import Experiment
from katib.places.machine import open_engine
from katib.places.machine.pods.leases import LeaseTable
from katib.places.machine.pods.requests import Capacity, Lease, Request
from katib.places.machine.pods.tokens import Tokens
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.remains import EngineRecord
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import is_completed
from tests.support.cli import KATIB, environment, katib
from tests.support.experiments import COMMAND, a_job, a_template, an_experiment
from tests.support.local_jobs import Home, home, job, shell
from tests.support.processes import Launch, read_pid
from tests.support.waiting import eventually

TWO_CARDS = Capacity(Decimal(2), Decimal(2**30), ("4", "5"))
ONE_CARD = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


@contextmanager
def sharing(root: Path, leases: Path, capacity: Capacity = TWO_CARDS) -> Iterator[Home]:
    with ExitStack() as stack:
        held: list[int] = []
        table = LeaseTable(leases, capacity, held.append, SystemClock(), root)
        stack.callback(table.close)
        root.mkdir()
        yield stack.enter_context(home(root, machine={"capacity": capacity, "leases": Deferred(lambda: table)}))


def until(path: Path) -> str:
    return f"while [ ! -e {path} ]; do sleep 0.01; done"


def test_a_pod_waits_for_the_card_of_another_engine_and_says_whose_it_is(tmp_path: Path, leases: Path) -> None:
    capacity = Capacity(Decimal(2), Decimal(2**30), ("4",))
    with sharing(tmp_path / "one", leases, capacity) as one, sharing(tmp_path / "two", leases, capacity) as two:
        one.submit(job(shell(f"touch {tmp_path}/up; {until(tmp_path / 'go')}", **ONE_CARD)))
        eventually((tmp_path / "up").exists)
        two.submit(job(shell("echo $CUDA_VISIBLE_DEVICES", **ONE_CARD)))
        eventually(lambda: two.runner.waiting_reason("ns", "j"))
        assert two.runner.waiting_reason("ns", "j") == (
            f"waits for 1 GPU: held by job j of process {os.getpid()} in {tmp_path}/one"
        )

        (tmp_path / "go").touch()

        assert two.wait_for_end()["type"] == "Complete"
        assert two.log() == "4\n"


def test_trials_say_which_card_they_run_on_and_halves_share_one(tmp_path: Path, leases: Path) -> None:
    program = f"echo $CUDA_VISIBLE_DEVICES >> {tmp_path}/cards; {until(tmp_path / 'go')}; {COMMAND}"
    raw = an_experiment(command=program, maxTrialCount=3, parallelTrialCount=3)
    template = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]
    template["metadata"] = {"annotations": {"katib.kubeflow.org/gpu-share": "2"}}
    template["spec"]["containers"][0] |= ONE_CARD
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps(raw))
    argv, env = [*KATIB, "run", str(file), "--gpus", "6-7"], environment(KATIB_LEASES=str(leases))
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as process:
        eventually(lambda: katib("trials", "demo", "-o", "wide", cwd=tmp_path).stdout.count(" on GPU ") == 3)
        words = katib("trials", "demo", "-o", "wide", cwd=tmp_path).stdout
        (tmp_path / "go").touch()
    template["metadata"]["annotations"]["katib.kubeflow.org/gpu-share"] = "half"
    file.write_text(json.dumps(raw))
    refused = [katib("run", file, "--restart", cwd=tmp_path), katib("run", file, "--gpus", "4,x", cwd=tmp_path)]

    assert (process.returncode, sorted((tmp_path / "cards").read_text().split())) == (0, ["6", "6", "7"])
    assert (words.count("on GPU 6"), words.count("on GPU 7")) == (2, 1)
    assert [done.returncode for done in refused] == [2, 2]
    assert 'katib.kubeflow.org/gpu-share: "half" ' in refused[0].stderr
    assert '--gpus: "x" ' in refused[1].stderr


def test_a_pod_without_cards_sees_those_that_nobody_has_leased(tmp_path: Path, leases: Path) -> None:
    with sharing(tmp_path / "one", leases) as one, sharing(tmp_path / "two", leases) as two:
        one.submit(job(shell(f"touch {tmp_path}/up; {until(tmp_path / 'go')}", **ONE_CARD)))
        eventually((tmp_path / "up").exists)
        show, own = shell("echo =$CUDA_VISIBLE_DEVICES"), [{"name": "CUDA_VISIBLE_DEVICES", "value": "4"}]

        two.run(job(show, name="modest"))
        two.run(job({**show, "env": own}, name="chosen"))
        one.submit(job(shell(f"touch {tmp_path}/both; {until(tmp_path / 'go')}", **ONE_CARD), name="second"))
        eventually((tmp_path / "both").exists)
        two.run(job(show, name="late"))

        assert [two.log(name=name) for name in ("modest", "chosen", "late")] == ["=5\n", "=4\n", "=\n"]
        (tmp_path / "go").touch()


def test_a_pod_of_a_machine_without_cards_keeps_what_the_engine_was_started_with(
    tmp_path: Path, leases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with sharing(tmp_path / "one", leases, Capacity(Decimal(2), Decimal(1))) as one:
        one.run(job(shell("echo =$CUDA_VISIBLE_DEVICES")))

        assert one.log() == "=-1\n"


HOLDER = """
import os, sys, threading
from decimal import Decimal
from pathlib import Path
from katib.places.machine.pods.leases import LeaseTable
from katib.places.machine.pods.tokens import Capacity, Request, Tokens
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.handle import Command
from katib.engine.runtime.clock import SystemClock

directory, leases = Path(sys.argv[1]), Path(sys.argv[2])
processes = Processes(directory)
processes.start()
capacity = Capacity(Decimal(1), Decimal(1), ("0",))
tokens = Tokens(capacity, LeaseTable(leases, capacity, processes.hold, SystemClock(), directory), lambda *_: None)
tokens.ask("pod", Request(gpus=1), lambda lease: None, holder="experiment killed")
null = os.open(os.devnull, os.O_RDWR)
program = ["sh", "-c", f"echo $$ >{directory}/pid.new; mv {directory}/pid.new {directory}/pid; sleep 600"]
processes.spawn(Command(program, dict(os.environ)), null, on_exit=lambda *_: None)
print("ready", flush=True)
threading.Event().wait()
"""


def test_what_a_killed_engine_held_is_free_when_its_last_process_has_ended(
    tmp_path: Path, leases: Path, launch: Launch
) -> None:
    engine = launch([sys.executable, "-c", HOLDER, tmp_path, leases], stdout=subprocess.PIPE)
    assert engine.stdout is not None
    assert engine.stdout.readline() == b"ready\n"
    program, record = read_pid(tmp_path / "pid"), EngineRecord.read(tmp_path / "engine.json")
    assert record is not None
    capacity, planned = Capacity(Decimal(1), Decimal(1), ("0",)), []
    table = LeaseTable(leases, capacity, lambda _descriptor: None, SystemClock(), tmp_path)
    tokens, granted = Tokens(capacity, table, lambda _seconds, look: planned.append(look)), list[Lease]()

    os.kill(record.guard_pid, signal.SIGSTOP)  # so that the program is there when we look
    engine.kill()
    engine.wait()
    tokens.ask("pod", Request(gpus=1), granted.append)

    assert granted == []
    assert f" killed of process {engine.pid}" in tokens.waiting_reason("pod")
    os.kill(program, 0)

    os.kill(record.guard_pid, signal.SIGCONT)

    def is_granted() -> bool:
        planned.pop(0)()
        return bool(granted)

    eventually(is_granted)
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)
    table.close()


def test_a_guard_that_takes_the_place_of_a_killed_one_holds_on(tmp_path: Path, leases: Path) -> None:
    processes = Processes(tmp_path, adopt_orphans=False)
    processes.start()
    capacity = Capacity(Decimal(1), Decimal(1))
    table = LeaseTable(leases, capacity, processes.hold, SystemClock(), tmp_path)
    Tokens(capacity, table, lambda *_: None).ask("pod", Request(cpu=Decimal(1)), lambda _lease: None)

    def guard() -> int:
        record = EngineRecord.read(tmp_path / "engine.json")
        return 0 if record is None else record.guard_pid

    def holds() -> bool:
        for link in Path(f"/proc/{guard()}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if link.readlink().parent == leases:
                    return True
        return False

    try:
        eventually(holds)
        first = guard()
        os.kill(first, signal.SIGKILL)

        eventually(lambda: guard() != first and holds())
    finally:
        processes.stop()
        table.close()
    assert [path.name for path in leases.iterdir()] == ["table.lock"]


def experiment(name: str, script: str) -> dict[str, Any]:
    spec = a_job(f"{script}; echo loss=${{trialParameters.learningRate}}")
    spec["spec"]["template"]["spec"]["containers"][0] |= ONE_CARD
    template = a_template() | {"trialSpec": spec}
    return an_experiment(name=name, trialTemplate=template, maxTrialCount=1, parallelTrialCount=1)


def ended(service: TuningService, name: str) -> bool:
    return is_completed(service.get(Experiment, "default", name))


def test_two_engines_with_two_directories_run_one_after_the_other_on_one_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with open_engine(tmp_path / "one") as one, open_engine(tmp_path / "two") as two:
        one.start()
        two.start()
        one.service.submit(
            yaml.safe_dump(experiment("first", f"touch {tmp_path}/up; {until(tmp_path / 'go')}")), source="a.yaml"
        )
        eventually((tmp_path / "up").exists)
        two.service.submit(yaml.safe_dump(experiment("second", "true")), source="b.yaml")
        eventually(lambda: two.service.trials("default", "second").total)
        trial = two.service.trials("default", "second").items[0].name
        eventually(lambda: "has to wait" in two.service.why("default", trial).verdict)

        reason = f"waits for 1 GPU: held by experiment first of process {os.getpid()} in {tmp_path}/one"
        assert reason in two.service.why("default", trial).verdict

        (tmp_path / "go").touch()

        eventually(lambda: ended(one.service, "first") and ended(two.service, "second"))
