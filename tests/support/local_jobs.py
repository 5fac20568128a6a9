"""A runner of local jobs on real processes and an in-memory store, with the monitors of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from katib.engine.controllers.job_caches import JobCaches
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.controller import Manager
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread
from katib.errors import Backoff
from katib.model.names import TRIAL_LABEL
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.conditions import end_of
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.jobs.dependencies import Collection, JobSettings, Machine, Provision
from katib.places.machine.jobs.kind import JobKind
from katib.places.machine.jobs.kinds import JobKinds
from katib.places.machine.jobs.prepare import trial_name
from katib.places.machine.pods.output import Monitor
from katib.places.machine.pods.pulls import PullNews
from katib.places.machine.pods.records import Delays
from katib.places.machine.processes.client import Processes
from tests.support.memory_store import MemoryStore
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
    size: int = 0
    polls: int = 0
    verdict: str = ""
    done: Callable[[str], None] | None = None

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        if self.keep:
            self.data += data
        if self.stop_when and self.stop_when in self.data:
            self.verdict = "rule met"

    def begin_again(self) -> None:
        pass

    def hasten(self) -> None:
        pass

    def poll(self) -> None:
        self.polls += 1

    def close(self, done: Callable[[str], None]) -> None:
        self.done = done
        if not self.hold_close:
            self.release()

    def release(self) -> None:
        assert self.done is not None
        self.done(self.explanation)


@dataclass
class Monitors:
    """Makes recording monitors for containers of one name; `settings` are the fields of each."""

    settings: dict[str, Any] = field(default_factory=dict)
    opened: list[RecordingMonitor] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)

    def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> Monitor | None:
        if container != PRIMARY:
            return None
        monitor = RecordingMonitor(container, directory, **self.settings)
        self.opened.append(monitor)
        return monitor

    def may_outlive(self, job: Object) -> bool:
        return True

    def resume(self, job: Object) -> None:
        self.resumed.append(job["metadata"]["name"])

    def go_on(self, job: Object) -> None:
        pass

    def try_again(self, job: Object, failed: object, others: object) -> None:
        pass

    def discard(self, job: Object) -> None:
        self.discarded.append(job["metadata"]["name"])

    def job_gone(self, job: Object) -> None:
        pass

    def collection(self, job: Object, pod_labels: Mapping[str, str]) -> Collection:
        return Collection({}, {})

    def needs_machine(self, job: Object) -> bool:
        return False


@dataclass
class Owner:
    """Owns jobs without trials."""

    directory: Path
    releases: Callable[[], bool] = lambda: True

    def provision(self, job: Object) -> Provision:
        return Provision(self.directory)

    def pod_labels(self, job: Object) -> Mapping[str, str]:
        return {TRIAL_LABEL: trial_name(job)}

    def may_start(self, job: Object) -> bool:
        return True

    def is_stopped(self, job: Object) -> bool:
        return False

    def is_interrupted(self, job: Object) -> bool:
        return False

    def may_delete(self, job: Object) -> bool:
        return self.releases()

    def stands(self, job: Object) -> None:
        pass

    def pulled(self, job: Object, news: PullNews) -> None:
        pass

    def retried(self, job: Object, how: str) -> None:
        pass

    def went_on(self, job: Object, until: float | None) -> None:
        del job, until

    def gone(self, job: Object) -> None:
        pass


def shell(script: str, name: str = PRIMARY, **fields: Any) -> dict[str, Any]:
    """Return a container that runs a shell script; `$$` is escaped, since Kubernetes reduces it to one dollar sign."""
    return {"name": name, "image": "none", "command": ["sh", "-c", script.replace("$$", "$$$$")], **fields}


def job(
    *containers: dict[str, Any], name: str = "j", restart: str = "Never", pod: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Return a Job object; keywords go to its spec, `pod` to the spec of its pods."""
    template = {"spec": {"restartPolicy": restart, "containers": list(containers), **(pod or {})}}
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**spec, "template": template}}


@dataclass
class Home:
    """A store, the controller of its jobs and their monitors."""

    store: ObjectStore
    runner: JobController
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
        found = (self.root / "ns" / name).glob(f"*/{container}.log")
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
    owner: Owner | None = None,
    kinds: Mapping[Kind, JobKind] | Sequence[JobKind] | None = None,
    machine: dict[str, Any] | None = None,
    delays: Delays | None = None,
    **settings: Any,
) -> Iterator[Home]:
    """Run the jobs of a store; failures make them wait for milliseconds.

    Args:
        machine: Fields of `Machine`.
        settings: Fields of `JobSettings`.
    """
    clock, monitors = SystemClock(), monitors or Monitors()
    if not isinstance(kinds, Mapping):
        kinds = {kind.kind: kind for kind in kinds} if kinds else JobKinds()
    store = store or MemoryStore({JOB})
    delays = delays or Delays(recreate=Backoff(0.01, 600.0), restart=Backoff(0.01, 300.0))
    (root / "trials").mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        processes = Processes(root / "engine")
        processes.start()
        stack.callback(processes.stop)
        thread = SharedThread("jobs", clock)
        thread.start()
        stack.callback(thread.stop)
        jobs = JobCaches(store, list(kinds), clock, thread=thread)
        controller = JobController(
            store,
            Machine(processes, clock, **(machine or {})),
            JobSettings(root / "trials", delays=delays, **settings),
            kinds,
            jobs,
            owner or Owner(root),
            monitors,
            thread,
        )
        stack.enter_context(Manager(jobs.known, [Ending(controller)]))
        yield Home(store, controller, processes, monitors, root / "trials")


class Ending:
    """A controller of jobs whose pods have half a second to end."""

    def __init__(self, controller: JobController) -> None:
        self.start = controller.start
        self.stop = partial(controller.stop, grace_seconds=0.5)
