"""A Slurm cluster of three nodes on this machine: `slurmctld`, three `slurmd` and `munged`, of the tests alone.

All of it is in one directory: keys, sockets, state, logs and `slurm.conf`. Its daemons are children of the test process
and end with `close`, or with that process. Commands find the cluster by `SLURM_CONF`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.ports import free_port

NODES = ("n1", "n2", "n3")
CPUS, MEMORY_MIB, GPUS = 4, 4000, 2
KILL_WAIT_SECONDS = 5

_START_SECONDS = 30.0
_END_SECONDS = 10.0


def why_not() -> str:
    """Return why no cluster can run on this machine; empty when one can."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if _find(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.geteuid() == 0 else "slurmd runs jobs as root only"


class SlurmCluster:
    """A running cluster.

    Args:
        directory: Where everything of it is kept. Its parents must be open to all: `munged` refuses others.
        name: As Slurm knows it.
    """

    def __init__(self, directory: Path, name: str = "katib") -> None:
        self._name = name
        self.directory = directory
        self.environment: Mapping[str, Any] = {"SLURM_CONF": str(directory / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the daemons; return when all nodes are idle."""
        self._write()
        for daemon in ("munged", "slurmctld", *NODES):
            self.start_daemon(daemon)
        _wait(
            lambda: self.command("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * 3 * len(NODES),
            "nodes are not idle",
        )

    def close(self) -> None:
        """End all jobs and daemons."""
        with suppress(subprocess.SubprocessError, TimeoutError):
            for job in self.command("squeue", "-h", "-o", "%A").split():
                self.command("scancel", "--full", "--signal=KILL", job)
            self.command("scancel", "--user=root")
            _wait(lambda: not self.command("squeue", "-h"), "jobs do not end", _END_SECONDS)
        for name in list(reversed(self._daemons)):
            self.kill(name, signal.SIGTERM)
        for process in self._processes(b""):  # what daemons that were killed have left
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)

    def trial_processes(self) -> list[int]:
        """Return the processes of trials."""
        return list(self._processes(b"\0SLURM_JOB_ID="))

    def _processes(self, words: bytes) -> Iterator[int]:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                found = (process / "environ").read_bytes()
                if f"{self.directory}/".encode() in found and words in found:
                    yield int(process.name)

    def resume_nodes(self) -> None:
        """Use nodes again as an administrator does: Slurm drains those that run a job whose number it gives again."""
        for node in set(self.command("sinfo", "-h", "-N", "-t", "drain", "-o", "%N").split()):
            self.command("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def command(self, *argv: str) -> str:
        """Return what a command of Slurm prints."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(argv, env=environment, check=True, text=True, capture_output=True, timeout=30).stdout

    def jobs(self, *, states: str = "all") -> list[str]:
        """Return the names of all jobs in these states."""
        return self.command("squeue", "-h", f"--states={states}", "-o", "%j").split()

    def start_daemon(self, daemon: str) -> None:
        """Start `munged`, `slurmctld` or the `slurmd` of a node."""
        configuration = str(self.directory / "slurm.conf")
        if daemon in NODES:
            self._run("slurmd", "-D", "-N", daemon, "-f", configuration, known_as=daemon)
        elif daemon == "slurmctld":
            self._run(daemon, "-D", "-f", configuration)
        else:
            socket, key = self.directory / "munge.sock", self.directory / "munge/key"
            socket.unlink(missing_ok=True)
            self._run(
                daemon, "--foreground", "--force", f"--socket={socket}", f"--key-file={key}", *self._munge_files()
            )
            _wait(socket.exists, "munged makes no socket")

    def save_state(self) -> None:
        """Keep what the controller has saved by now."""
        shutil.rmtree(self.directory / "saved", ignore_errors=True)
        shutil.copytree(self.directory / "state", self.directory / "saved")

    def restore_state(self) -> None:
        """Go back to what was kept, as a controller does that is killed before it saves; it must not run."""
        shutil.rmtree(self.directory / "state")
        shutil.move(self.directory / "saved", self.directory / "state")

    def kill(self, daemon: str, sig: signal.Signals = signal.SIGKILL) -> None:
        """End a daemon: `munged`, `slurmctld` or a node."""
        process = self._daemons.pop(daemon)
        process.send_signal(sig)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _run(self, program: str, *arguments: str, known_as: str = "") -> None:
        name = known_as or program
        log = (self.directory / f"{name}.out").open("ab")
        environment = {**os.environ, **self.environment}
        with log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", _find(program) or program, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _munge_files(self) -> list[str]:
        return [f"--{kind}-file={self.directory / 'munge' / kind}" for kind in ("pid", "log", "seed")]

    def _write(self) -> None:
        (self.directory / "munge").mkdir(mode=0o700, parents=True)
        (self.directory / "munge/key").write_bytes(os.urandom(128))
        (self.directory / "munge/key").chmod(0o400)
        self.directory.chmod(0o755)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.directory / name).mkdir()
        for i in range(GPUS):
            (self.directory / f"gpu{i}").touch()
        controller, *nodes = [free_port() for _ in range(1 + len(NODES))]
        lines = [
            f"ClusterName={self._name}",
            *_CONFIGURATION.format(directory=self.directory, port=controller, wait=KILL_WAIT_SECONDS).splitlines(),
            *(
                f"NodeName={node} NodeHostname=localhost Port={port} {_NODE}"
                for node, port in zip(NODES, nodes, strict=True)
            ),
            "PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP",
            "PartitionName=other Nodes=ALL MaxTime=60 State=UP",
            "PartitionName=urgent Nodes=ALL MaxTime=60 State=UP PriorityTier=2",
        ]
        (self.directory / "slurm.conf").write_text("\n".join([*lines, ""]))
        (self.directory / "gres.conf").write_text(f"Name=gpu File={self.directory}/gpu[0-{GPUS - 1}]\n")


@contextmanager
def slurm_cluster(name: str = "katib") -> Iterator[SlurmCluster]:
    """Start a cluster, and end it."""
    with TemporaryDirectory(prefix="katib-slurm-") as directory:
        cluster = SlurmCluster(Path(directory), name)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


_CONFIGURATION = """\
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmdSpoolDir={directory}/spool-%n
StateSaveLocation={directory}/state
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000
SchedulerTimeSlice=5
KillWait={wait}
MinJobAge=300
ReturnToService=2
SlurmdTimeout=10
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
GresTypes=gpu
DefMemPerCPU=100
"""
_NODE = f"CPUs={CPUS} RealMemory={MEMORY_MIB} Gres=gpu:{GPUS}"


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _wait(is_so: object, otherwise: str, seconds: float = _START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    assert callable(is_so)
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.05)
