"""`katib.report` in real programs, against a real DB manager that asks for tokens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import pytest

from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager import DbManagerServer, serve_db_manager
from katib.wire.rpc.log_guard import LogGuard, MemoryAccessList
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from tests.support.golden import Golden
from tests.support.observations import MemoryObservationLog
from tests.support.ports import free_port
from tests.support.waiting import eventually

TOKENS = TokenSigner([b"k" * 32])
TRIAL = "demo-1"
NAMES = ("PYTHONPATH", "PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE")


@dataclass
class World:
    """A DB manager that can be away, and programs of a trial that push to it."""

    address: str
    log: MemoryObservationLog = field(default_factory=MemoryObservationLog)
    server: DbManagerServer | None = None
    programs: list[subprocess.Popen[str]] = field(default_factory=list)

    def begin(self) -> None:
        guard = LogGuard(TOKENS, MemoryAccessList(), trusts_loopback=False)
        self.server = serve_db_manager(self.log, self.address, guard=guard)

    def end(self) -> None:
        if self.server is not None:
            self.server.stop(0)
            self.server = None

    def start(self, code: str, *, trial: str = TRIAL, token_of: str = TRIAL, **variables: str) -> subprocess.Popen[str]:
        environment = {
            **{name: os.environ[name] for name in NAMES if name in os.environ},
            **DbManagerCredentials(TOKENS.token_of(TokenClaims(CallerRole.TRIAL, "", token_of))).variables,
            "KATIB_TRIAL_NAME": trial,
            "KATIB_DB_MANAGER_ADDRESS": self.address,
            **variables,
        }
        program = subprocess.Popen(
            [sys.executable, "-c", f"import katib\n{code}"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.programs.append(program)
        return program

    def run(self, code: str, **variables: str) -> tuple[int, str, str]:
        program = self.start(code, **variables)
        output, errors = program.communicate(timeout=180)
        return program.returncode, output, errors

    def values(self, name: str = "loss") -> list[str]:
        return [reading.value for reading in self.log.read(TRIAL, metric_name=name)]


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


@contextmanager
def world_of(address: str) -> Iterator[World]:
    made = World(address)
    try:
        yield made
    finally:
        for program in made.programs:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
        made.end()


@pytest.fixture
def world() -> Iterator[World]:
    with world_of(free_address()) as made:
        made.begin()
        yield made


def test_a_program_pushes_in_order_and_prints_nothing(world: World) -> None:
    code = "for epoch in range(50): katib.report(loss=1 / (epoch + 1), accuracy=epoch / 50, step=epoch)"

    assert world.run(code) == (0, "", "")
    assert world.values() == [repr(1 / (epoch + 1)) for epoch in range(50)]
    assert [reading.step for reading in world.log.read(TRIAL, metric_name="accuracy")] == list(range(50))


def test_many_metrics_at_once_arrive_whole(world: World) -> None:
    """More than the kernel writes to a pipe as a whole."""
    assert world.run("katib.report({f'layer/{n}/gradient norm': n for n in range(1000)})") == (0, "", "")
    assert len(world.log.read(TRIAL)) == 1000


def test_a_name_that_is_not_text_is_refused_and_the_others_arrive(world: World) -> None:
    code = """
katib.report(loss=1)
try:
    katib.report({"accuracy": 1, b"\\xff".decode(errors="surrogateescape"): 2})
except (TypeError, UnicodeError):
    print("refused")
katib.report(loss=2)
"""
    status, output, _ = world.run(code)

    assert (status, output) == (0, "refused\n")
    assert world.values() == ["1.0", "2.0"]


@pytest.mark.parametrize(
    "method", ["api.v1.beta1.DBManager/ReportObservationLog", "katib.observations.v1.Observations/Report"]
)
def test_bytes_that_are_not_utf_8_are_refused_and_disturb_nobody(world: World, method: str) -> None:
    """Sent by hand: no library of Protocol Buffers writes such a text."""
    token = DbManagerCredentials(TOKENS.token_of(TokenClaims(CallerRole.TRIAL, "", TRIAL)))
    bad = b"\x0a\x08" + TRIAL.encode()[:4] + b"\xff\xfe\xfd\xfc"
    with token.channel(world.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/{method}", lambda data: data, lambda data: data)(
            bad, timeout=60, metadata=token.metadata
        )

    assert isinstance(caught.value, grpc.Call)
    assert world.run("katib.report(loss=3)") == (0, "", "")
    assert world.values() == ["3.0"]


PROCESSES = {
    "threads": """
import threading
threads = [threading.Thread(target=lambda: [katib.report(loss=n) for n in range(25)]) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
""",
    "forks after a reading": """
import os
katib.report(accuracy=1)
children = []
for _ in range(4):
    child = os.fork()
    if not child:
        [katib.report(loss=n) for n in range(25)]
        os._exit(0)
    children.append(child)
[os.waitpid(child, 0) for child in children]
""",
    "multiprocessing before a reading": """
import multiprocessing
context = multiprocessing.get_context("fork")
children = [context.Process(target=lambda: [katib.report(loss=n) for n in range(25)]) for _ in range(4)]
[child.start() for child in children]
""",
    "programs of their own": """
import subprocess, sys
code = "import katib; [katib.report(loss=n) for n in range(25)]"
children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
[child.wait() for child in children]
""",
}


@pytest.mark.parametrize("code", PROCESSES.values(), ids=PROCESSES)
def test_every_thread_and_process_of_a_program_may_push(world: World, code: str) -> None:
    assert world.run(code) == (0, "", "")
    assert sorted(world.values()) == sorted(repr(float(n)) for n in range(25) for _ in range(4))


ENDS = {
    "default": ("", -signal.SIGTERM, ""),
    "a handler that exits": ("signal.signal(15, lambda *_: sys.exit(3))", 3, ""),
    "a handler that leaves at once": ("signal.signal(15, lambda *_: os._exit(4))", 4, ""),
    "a handler that continues": ("signal.signal(15, lambda *_: print('mine', flush=True))", 0, "mine\n"),
    "ignored": ("signal.signal(15, signal.SIG_IGN)", 0, ""),
}


@pytest.mark.parametrize(("handler", "code", "output"), ENDS.values(), ids=ENDS)
def test_sigterm_delivers_what_was_reported_and_does_what_it_did(
    world: World, handler: str, code: int, output: str
) -> None:
    ended = world.run(f"import os, signal, sys\n{handler}\nkatib.report(loss=1)\nos.kill(os.getpid(), 15)")

    assert ended == (code, output, "")
    assert world.values() == ["1.0"]


def test_a_ctrl_c_for_the_whole_group_does_not_end_what_sends(world: World) -> None:
    program = world.start("import time\nkatib.report(loss=1)\nprint('on', flush=True)\ntime.sleep(600)")
    assert program.stdout is not None
    assert program.stdout.readline() == "on\n"
    os.killpg(program.pid, signal.SIGINT)
    program.communicate(timeout=180)

    assert world.values() == ["1.0"]


def test_a_db_manager_that_is_away_loses_nothing(golden: Golden) -> None:
    with world_of(free_address()) as world:
        program = world.start("for n in range(300): katib.report(loss=n, step=n)\nprint('done', flush=True)")
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "done\n"  # the program was not held up
        assert "kept and sent again" in program.stderr.readline()
        world.begin()
        _, errors = program.communicate(timeout=180)  # its end has waited

        assert program.returncode == 0
        assert world.values() == [repr(float(n)) for n in range(300)]
        golden(errors)


def test_a_db_manager_that_stays_away_is_waited_for_so_long_and_no_longer() -> None:
    with world_of(free_address()) as world:
        code, _, errors = world.run("for n in range(30): katib.report(loss=n)", KATIB_GIVE_UP_SECONDS="0.5")

        assert code == 0
        assert "30 readings" in errors


@pytest.mark.parametrize("wrong", [{"token_of": "another"}, {"KATIB_DB_MANAGER_TOKEN": "made-up"}])
def test_a_wrong_token_is_told_once_and_disturbs_nobody(world: World, wrong: dict[str, str]) -> None:
    program = (
        "from katib.sdk.pushing import sender\n"
        "for n in range(3): katib.report(loss=n); assert sender().flush(60)\n"  # a batch of its own
        "print('trained')"
    )

    code, output, errors = world.run(program, **wrong)

    assert (code, output) == (0, "trained\n")
    assert len([line for line in errors.splitlines() if "are refused" in line]) == 1
    assert "3 readings were refused" in errors
    assert world.values() == []


def test_a_program_may_push_again_after_what_sends_was_killed(world: World) -> None:
    code = (
        "import os, signal, time\nfrom katib.sdk.pushing import sender\n"
        "katib.report(loss=1)\nassert sender().flush(60)\nos.kill(sender()._child, 9)\nos.waitpid(sender()._child, 0)\n"
        "katib.report(loss=2)"
    )

    exit_code, _, errors = world.run(code)

    assert exit_code == 0
    assert "has ended" in errors
    assert world.values() == ["1.0", "2.0"]


def test_a_program_that_closes_all_descriptors_keeps_its_files(world: World) -> None:
    """A daemon may get ours for a file of its own: readings must not be written there."""
    code = (
        "import os, tempfile\nkatib.report(loss=1)\nos.closerange(3, 100)\n"
        "files = [tempfile.TemporaryFile() for _ in range(20)]\nkatib.report(loss=2)\n"
        "print([file.read() for file in files if file.seek(0, 2)])"
    )

    exit_code, output, _ = world.run(code)

    assert (exit_code, output) == (0, "[]\n")
    assert world.values() == ["1.0", "2.0"]


def test_a_program_that_is_killed_loses_nothing_that_it_reported(world: World) -> None:
    world.start("import os\nkatib.report(loss=1)\nos.kill(os.getpid(), 9)").wait(180)

    assert eventually(world.values) == ["1.0"]
