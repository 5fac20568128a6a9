"""A runner of local jobs on real processes and an in-memory store, with the monitors of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from katib.backoff import Backoff
from katib.local.jobs.batch.job import JOB
from katib.local.jobs.conditions import end_of
from katib.local.jobs.prepare import job_directory
from katib.local.jobs.runner import LocalJobRunner
from katib.local.pods.monitor import MonitorReport
from katib.local.pods.records import Delays
from katib.local.processes.client import Processes
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.stores.memory import MemoryStore
from tests.support.waiting import eventually

PRIMARY = "main"


@dataclass
class RecordingMonitor:
    """Keeps what it is fed. Its verdict and backlog are set by the test; `close` answers at once, or when released."""

    container: str
    directory: Path
    data: bytearray = field(default_factory=bytearray)
    stop_when: bytes = b""
    explanation: str = ""
    hold_close: bool = False
    backlogged: bool = False
    keep: bool = True
    breaks: bool = False
    size: int = 0
    polls: int = 0
    verdict: str = ""
    done: Callable[[MonitorReport], None] | None = None

    def feed(self, data: bytes) -> None:
        if self.breaks:
            raise OSError("broken")
        self.size += len(data)
        if self.keep:
            self.data += data
        if self.stop_when and self.stop_when in self.data:
            self.verdict = "rule met"

    def hasten(self) -> None:
        pass

    def poll(self) -> None:
        self.polls += 1

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        self.done = done
        if not self.hold_close:
            self.release()

    def release(self) -> None:
        assert self.done is not None
        self.done(MonitorReport(self.explanation))


@dataclass
class Monitors:
    """Makes recording monitors for containers of one name; `settings` are the fields of each."""

    settings: dict[str, Any] = field(default_factory=dict)
    opened: list[RecordingMonitor] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)

    def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> RecordingMonitor | None:
        if container != PRIMARY:
            return None
        monitor = RecordingMonitor(container, directory, **self.settings)
        self.opened.append(monitor)
        return monitor

    def discard(self, job: Object) -> None:
        self.discarded.append(job["metadata"]["name"])


def shell(script: str, name: str = PRIMARY, **fields: Any) -> dict[str, Any]:
    """Return a container that runs a shell script; `$$` is escaped, since Kubernetes reduces it to one dollar sign."""
    return {"name": name, "image": "none", "command": ["sh", "-c", script.replace("$$", "$$$$")], **fields}


def job(
    *containers: dict[str, Any],
    name: str = "j",
    restart: str = "Never",
    pod: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a Job object; keywords go to its spec, `pod` to the spec of its pods."""
    template = {"spec": {"restartPolicy": restart, "containers": list(containers), **(pod or {})}}
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**spec, "template": template}}


@dataclass
class Home:
    """A store, a runner and its monitors."""

    store: ObjectStore
    runner: LocalJobRunner
    processes: Processes
    monitors: Monitors
    root: Path

    def submit(self, obj: dict[str, Any]) -> Object:
        return self.store.create(obj)

    def get(self, name: str = "j", kind: Kind = JOB) -> Object:
        return self.store.get(kind, Key("ns", name))

    def status(self, name: str = "j", kind: Kind = JOB) -> dict[str, Any]:
        return dict(self.get(name, kind).get("status") or {})

    def wait_for_end(self, name: str = "j", kind: Kind = JOB) -> dict[str, Any]:
        """Return the final condition of a job."""
        eventually(lambda: end_of(self.status(name, kind)), f"job {name} did not end")
        end = end_of(self.status(name, kind))
        assert end is not None
        return end

    def run(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Submit a job and return its final condition."""
        self.submit(obj)
        return self.wait_for_end(obj["metadata"]["name"], Kind.of(obj))

    def log(self, container: str = PRIMARY, name: str = "j") -> str:
        """Return the log of the newest pod."""
        return self.log_files(container, name)[-1].read_text()

    def log_files(self, container: str = PRIMARY, name: str = "j") -> list[Path]:
        """Return the logs of a container, one per pod that the job had, oldest first."""
        found = job_directory(self.root, "ns", name).glob(f"*/{container}.log")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    def update(self, change: Callable[[dict[str, Any]], None], name: str = "j") -> None:
        """Change the spec of a job."""
        import copy

        obj = copy.deepcopy(dict(self.get(name)))
        change(obj)
        self.store.update(obj)


@contextmanager
def home(
    root: Path,
    *,
    store: ObjectStore | None = None,
    monitors: Monitors | None = None,
    delays: Delays | None = None,
    workspace: Path | None = None,
    **options: Any,
) -> Iterator[Home]:
    """Run a runner whose failures make it wait for milliseconds."""
    processes = Processes(root / "engine")
    processes.start()
    monitors = monitors or Monitors()
    store = store or MemoryStore({JOB})
    runner = LocalJobRunner(
        store,
        processes,
        monitors,
        root / "trials",
        workspace=lambda _job: workspace or root,
        delays=delays or Delays(recreate=Backoff(0.01, 600.0), restart=Backoff(0.01, 300.0)),
        **options,
    )
    runner.start()
    try:
        yield Home(store, runner, processes, monitors, root / "trials")
    finally:
        runner.stop(grace_seconds=0.5)
        processes.stop()
