"""What a pod runs, as processes of this machine: a program below its launcher, the sidecar, and their services."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from katib.engine.observations import SqlObservationLog
from katib.errors import UnavailableError
from katib.model.metrics import BatchId, MetricLog
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.db_manager import DbManagerServer, serve_db_manager
from katib.wire.rpc.log_guard import LogGuard
from metrics_collector.sidecar import ALL_STORED
from tests.support.observations import sql_log
from tests.support.pods import launched_command
from tests.support.services import serving

TRIAL = "tune-abc"


class EarlyStopping:
    """Notes which trials were stopped; refuses as often as told."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.refusals = 0

    def SetTrialStatus(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        if self.refusals:
            self.refusals -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        self.stopped.append(request.trial_name)
        return pb.SetTrialStatusReply()


@contextmanager
def early_stopping() -> Iterator[tuple[EarlyStopping, str]]:
    """Serve early stopping; yields the service and its address."""
    service = EarlyStopping()
    with serving(early_stopping=service) as address:
        yield service, address


class Pod:
    """Starts the containers of one pod in a directory and ends them at the end."""

    def __init__(self, directory: Path, log: SqlObservationLog) -> None:
        self.metrics = directory / "metrics"
        self.metrics.mkdir(exist_ok=True)
        self.file = self.metrics / "metrics.log"
        self.launcher = directory / "launcher"
        self.launcher.mkdir(exist_ok=True)
        self.log = log
        self.guard: LogGuard | None = None
        self.server: DbManagerServer = serve_db_manager(log, "127.0.0.1:0")
        self.address = self.server.address
        self.termination_log = directory / "termination-log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._outputs: dict[subprocess.Popen[bytes], bytes] = {}
        self._readers: dict[subprocess.Popen[bytes], threading.Thread] = {}

    def program(self, *command: str, to_file: bool = True, **options: Any) -> subprocess.Popen[bytes]:
        """Start a program as the injected container does."""
        return self.start(self.launched(*command, to_file=to_file, **options))

    def launched(self, *command: str, to_file: bool = True, **options: Any) -> list[str]:
        """Return the command of a program's container."""
        return launched_command(command, str(self.launcher), file=str(self.file) if to_file else "", **options)

    def state(self) -> str:
        """Return what the launcher says of its last run, without its number; empty before the first one."""
        path = self.launcher / "state"
        return " ".join(path.read_text().split()[1:]) if path.exists() else ""

    def sidecar(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start the collector; flags given here come last and win."""
        command = [sys.executable, "-m", "metrics_collector", "-t", TRIAL, "-m", "loss;accuracy", "-o-type", "minimize"]
        command += ["-s-db", self.address, "-path", str(self.file), "-format", "TEXT", "-w", "false", *arguments]
        variables = {"KATIB_LAUNCHER_DIRECTORY": str(self.launcher), "KATIB_PROGRAM_ALONE": "true"}
        return self.start(command, KATIB_TERMINATION_LOG=str(self.termination_log), **{**variables, **environment})

    def readings(self, metric: str = "loss") -> list[str]:
        """Return what the log holds of one metric."""
        return [entry.value for entry in self.log.read(TRIAL, metric_name=metric)]

    def news(self) -> str:
        """Return what was left for Kubernetes."""
        return self.termination_log.read_text() if self.termination_log.exists() else ""

    def told(self) -> str:
        """Return what was left for Kubernetes beside that all is stored, which it has to say."""
        first, _, rest = self.news().partition("\n")
        assert first == ALL_STORED
        return rest

    def output(self, process: subprocess.Popen[bytes]) -> str:
        """Return what an ended container printed."""
        self._readers[process].join(60)
        return self._outputs[process].decode()

    def database_goes(self) -> None:
        """Stop the DB manager."""
        self.server.stop(0)

    def database_comes_back(self) -> None:
        """Serve the log again at its old address."""
        self.server = serve_db_manager(self.log, self.address, guard=self.guard)

    def lose_answer(self, number: int, meanwhile: Callable[[], None], *, stored: bool) -> None:
        """Give no answer to the report of this number, which is stored or not, and do something meanwhile."""
        report, numbers = self.log.report, itertools.count(1)

        def losing(trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
            is_the_one = next(numbers) == number
            if stored or not is_the_one:
                report(trial_name, logs, batch)
            if is_the_one:
                meanwhile()
                raise UnavailableError("the answer is lost")

        self.log.report = losing  # type: ignore[method-assign]  # of this log alone

    def close(self) -> None:
        """End everything."""
        for process in self._processes:
            process.kill()
            process.wait()
        for reader in self._readers.values():
            reader.join(60)
        self.server.stop(0)

    def start(self, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """Start a container."""
        variables = {**os.environ, **environment}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=variables)
        self._processes.append(process)
        self._outputs[process] = b""
        reader = threading.Thread(target=self._drain, args=(process,), daemon=True)
        self._readers[process] = reader
        reader.start()
        return process

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            while chunk := os.read(stream.fileno(), 1 << 16):
                self._outputs[process] += chunk


@contextmanager
def pod_processes(directory: Path) -> Iterator[Pod]:
    """Make a pod whose DB manager serves a SQLite log."""
    with sql_log(directory) as log:
        pod = Pod(directory, log)
        try:
            yield pod
        finally:
            pod.close()
