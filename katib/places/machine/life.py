"""The life of an engine: opened, started, stopped, closed, each at most once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from katib.engine.controllers.assembly import Controllers
from katib.engine.controllers.caches import Caches
from katib.engine.runtime.interpreter import tune_interpreter
from katib.engine.runtime.objects import Key
from katib.engine.runtime.shared_thread import SharedThread
from katib.engine.stores.event_queue import EventSubject
from katib.model.conditions import has_ended
from katib.places.machine.collection import MetricCollection
from katib.places.machine.data import EngineData
from katib.places.machine.jobs.controller import JobController
from katib.places.machine.processes.client import Processes
from katib.places.machine.requests import Requests
from katib.places.machine.sites import Site
from katib.places.machine.upkeep import Upkeep
from katib.service.tuning.stored_service import ObjectTuningService

if TYPE_CHECKING:
    from katib.service.tuning.chosen_trials import ChosenTrials
    from katib.service.tuning.object_home import ObjectHome

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts of an open engine. Controllers and informers take turns on the thread."""

    site: Site
    processes: Processes
    data: EngineData
    thread: SharedThread
    caches: Caches
    collection: MetricCollection
    jobs: JobController
    controllers: Controllers
    upkeep: Upkeep
    requests: Requests


class EngineLife(ABC):
    """Starts and stops the parts of an engine.

    Attributes:
        in_slurm: In Slurm, how many trials with checkpoints ended when it was stopped, and how many continue; None
            before, and elsewhere.
        is_cut_off: Whether the allocation of Slurm in which this process runs ended before it was stopped.
        on_cut_off: Called, on any thread, when it ends or the data directory is lost. Set it before the start.

    Args:
        own_process: Whether this process is there for the engine, and its interpreter may be set up for it.
    """

    def __init__(self, *, own_process: bool) -> None:
        self.in_slurm: tuple[int, int] | None = None
        self.is_cut_off = False
        self.on_cut_off: Callable[[], None] = lambda: None
        self._own_process = own_process
        self._open = ExitStack()
        self._running = ExitStack()
        self._starting = threading.Lock()
        self._started = self._stopped = self._leaves = self._interrupted = False

    @abstractmethod
    def _compose(self, stack: ExitStack) -> EngineParts:
        """Return the parts; what has to be closed goes to the stack."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._parts = self._compose(stack)
            stack.callback(self._stop_jobs)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaves = self._leaves or not self._started  # then what an earlier engine left waits for the next one
        try:
            self.stop()
        finally:
            self._open.close()

    @property
    def service(self) -> ObjectTuningService:
        """The verbs."""
        return self._parts.requests.service

    @property
    def chosen_trials(self) -> ChosenTrials:
        """The experiments whose parameters are chosen by callers."""
        return self._parts.requests.chosen_trials.get()

    @property
    def objects(self) -> ObjectHome:
        """All objects, for those who read and write any kind of them."""
        return self._parts.requests.objects

    def start_for(self, own: Key | None) -> None:
        """Set to work for one experiment of a command, or for none; others that are unfinished stay interrupted.

        Experiments that are submitted or resumed meanwhile run as well.
        """
        self._parts.data.ownership.take(own)
        self.start()

    def start(self) -> None:
        """Set everything to work; unfinished experiments continue that no command has left interrupted."""
        with self._starting:
            if not self._started:
                self._parts.requests.check_placement()
                self._start()
                self._started = True

    def _start(self) -> None:
        parts, data = self._parts, self._parts.data
        if self._own_process:
            tune_interpreter()
        if not parts.upkeep.removes_logs:  # old logs are looked for in the caches
            data.ended.hide(parts.caches.has)
        with ExitStack() as stack:
            data.events.start()
            stack.callback(data.events.stop)
            stack.callback(parts.upkeep.remove_old)
            stack.callback(parts.collection.flush)
            stack.callback(data.write_run_times)  # after the last program has ended
            # The controllers first: jobs are looked up in their caches, and so are the trials of jobs.
            parts.processes.renew_grace()
            for part in (parts.thread, parts.controllers, parts.upkeep):
                part.start()
                stack.callback(part.stop)
            self._record_resumed()
            stack.callback(self._stop_jobs)
            parts.jobs.start()
            self._running = stack.pop_all()

    def _record_resumed(self) -> None:
        for experiment in self._parts.caches.experiments.all():
            is_begun = experiment.status.start_time is not None and not has_ended(experiment.status.conditions)
            if is_begun and not self._parts.data.ownership.is_interrupted(experiment):
                message = "An engine was started and continues with it; trials that were cut off are restarted"
                self._parts.data.recorder.record(experiment, warning=False, reason="Resumed", message=message)

    def stop(self, *, interrupted: bool = False) -> None:
        """End all trials and come to rest; what is unfinished continues with the next start. Stopping twice is fine.

        Args:
            interrupted: Whether trials in Slurm, which continue otherwise, end if they keep a checkpoint.

        Raises:
            TerminalError: The data directory was moved or removed; everything has come to rest.
        """
        self._stopped, self._interrupted = True, interrupted
        if self._started and not self._leaves:
            self._parts.processes.keep_nothing()  # now: a second signal may end this process at any moment
        self._running.close()
        if self._started:
            self._parts.data.ownership.release()
            self.check_directory()

    @property
    def can_leave(self) -> bool:
        """Whether programs of trials can outlive this engine."""
        return self._parts.processes.keeps and not self._parts.data.directory.lost

    def leave(self) -> None:
        """Come to rest as `stop` does, but leave programs of trials that can outlive this engine to the next one."""
        self._leaves = self.can_leave
        self.stop()

    def _cut_off(self) -> None:
        self.on_cut_off()

    def _stop_jobs(self) -> None:
        site = self._parts.site
        leaves = self._leaves or not self._started or site.is_elsewhere
        counts = self._parts.jobs.stop(leaves=leaves, leaves_checkpointed=not self._interrupted)
        if site.is_elsewhere and self.in_slurm is None:
            self.in_slurm = counts
            self.is_cut_off = site.is_ending()

    def check_directory(self) -> None:
        """Check that the data directory is at its path.

        Raises:
            TerminalError: It was moved or removed.
        """
        self._parts.data.directory.check()

    def readiness(self) -> dict[str, bool]:
        """Return whether experiments continue: the parts that must work, and whether they do."""
        return {"controllers": self._started and not self._stopped, "database": self._parts.data.answers()}

    def interrupted(self) -> Sequence[str]:
        """Return the names of unfinished experiments that this engine does not run until they are resumed."""
        is_interrupted = self._parts.data.ownership.is_interrupted
        return [found.name for found in self._parts.requests.service.experiments() if is_interrupted(found)]

    def note_hangup(self, namespace: str, experiment: str) -> None:
        """Record that the terminal from which an experiment is run is gone, and that it continues."""
        message = "The terminal is gone; the run continues, and `katib watch` shows it"
        subject = EventSubject("Experiment", namespace, experiment, experiment)
        self._parts.data.events.record(subject, warning=False, reason="TerminalGone", message=message)

    def summarized(self, experiment: Key) -> bool:
        """Bring the status of an experiment up to date after what was stored; return False before the start."""
        if self._started:  # informers take their turns before it
            self._parts.thread.call(partial(self._parts.controllers.summarize, experiment))
        return self._started

    def undisturbed(self, experiment: Key, work: Callable[[], T], /) -> T:
        """Call a function that writes an experiment, while no controller does; return what it returns."""
        with self._starting:
            if not self._started:
                return work()
        self._parts.data.ended.show(experiment)
        return self._parts.thread.call(work)
