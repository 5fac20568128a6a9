"""Evaluation of trials by jobs in forked processes, several at once.

Each slot is a process without threads, which forks one for each of its jobs: a killed job is a failed trial, and its
memory is freed with it. Jobs report through a pipe (`katib.report`), which answers whether to stop. The next trial is
requested as soon as a job ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol

from katib.errors import KatibError, one_line
from katib.model.names import SEED_VARIABLE
from katib.sdk import reporting
from katib.sdk.asking import AskedTrial, Experiment, StopTrial

_FORKS = multiprocessing.get_context("fork")
_LOOK_SECONDS = 1.0
"""Maximum delay until an interrupted search ends while it waits for a trial or for the end of one."""

Readings = Mapping[str, float]


class CallOutcome(NamedTuple):
    """The outcome of a job.

    Attributes:
        values: Returned values, by name of the metric; empty if its reports count.
        failure: The reason of a failure; empty without one.
    """

    values: Readings
    failure: str = ""


class Task(NamedTuple):
    """A job, and the seed of its trial."""

    seed: int
    job: Any


Run = Callable[[Any], CallOutcome]
"""Runs a job of any picklable type; raises StopTrial if a report did."""


class Runner(Protocol):
    """Runs jobs, one after the other."""

    def run(self, task: Task, report: reporting.Receiver) -> CallOutcome | None:
        """Return the outcome of a job; None if `close` ended it, or its process is gone."""

    def close(self) -> None:
        """End the running job, if any."""


class InProcessRunner:
    """Runs jobs in this program."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def run(self, task: Task, report: reporting.Receiver) -> CallOutcome:
        """Return the outcome of a job."""
        reporting.have_received_by(report)
        try:
            return _outcome(self._run, task)
        finally:
            reporting.have_received_by(None)

    def close(self) -> None:
        """Do nothing: the job is on the stack."""


class ForkedSlot:
    """Runs jobs in processes that another process forks (`serve_jobs`).

    Args:
        pipe: Connection to that process.
        end: Ends it, and its job; called once.
    """

    def __init__(self, pipe: Connection, end: Callable[[], None]) -> None:
        self.pipe = pipe
        self._end = end
        self._lock = threading.Lock()

    def run(self, task: Task, report: reporting.Receiver) -> CallOutcome | None:
        """Return the outcome of a job; None if `close` ended it, or the forking process is gone."""
        with self._lock, suppress(EOFError, OSError):
            self.pipe.send(task)
            while not isinstance(message := self._received(), CallOutcome):
                self.pipe.send(_answered(report, *message))
            return message
        return None

    def _received(self) -> Any:
        while not self.pipe.poll(_LOOK_SECONDS):
            continue  # an interrupt may come just before the look, which then does not see it
        return self.pipe.recv()

    def close(self) -> None:
        """End the running job, if any. Closing twice is fine."""
        if not self.pipe.closed:
            with suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)  # readers at both ends notice it, unlike a closed descriptor
        self._end()
        with self._lock:
            self.pipe.close()


def forked_slots(run: Run, count: int) -> list[ForkedSlot]:
    """Return slots that are forks of this program, which has no threads yet."""
    slots: list[ForkedSlot] = []
    for _ in range(count):
        pipe, theirs = _FORKS.Pipe()
        inherited = [*(slot.pipe for slot in slots), pipe]
        slots.append(ForkedSlot(pipe, partial(_end, fork_slot(theirs, inherited, run))))
        theirs.close()
    return slots


def fork_slot(pipe: Connection, inherited: Sequence[Connection], run: Run) -> Any:
    """Return a process that serves jobs.

    Args:
        pipe: Source of the jobs.
        inherited: Connections to close, since they belong to other slots.
        run: Runs a job.
    """
    process = _FORKS.Process(target=serve_jobs, args=(pipe, inherited, run), name="katib-jobs")
    _start(process)
    return process


def _end(process: Any) -> None:
    process.terminate()
    process.join()


def _start(process: Any) -> None:
    """Start a process; a terminating signal is blocked until it is known, so that `end_with_children` ends it, too."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def end_with_children(*_: object) -> None:
    """End this process and its forks: a signal handler."""
    for child in multiprocessing.active_children():
        child.terminate()
    sys.exit()


def serve_jobs(pipe: Connection, inherited: Sequence[Connection], run: Run) -> None:
    """Fork a process for each job that comes through a pipe, until it is closed. This process has no threads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the jobs, too: at Ctrl-C the program ends this process
    signal.signal(signal.SIGTERM, end_with_children)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for one in inherited:
        one.close()
    with suppress(EOFError, OSError):
        while True:
            task = pipe.recv()
            ours, theirs = _FORKS.Pipe()
            job = _FORKS.Process(target=_run_job, args=(theirs, (ours, pipe), run, task))
            _start(job)
            try:
                theirs.close()
                outcome = _relayed(ours, pipe, job.sentinel)
            except BaseException:
                job.terminate()
                raise
            ours.close()
            job.join()
            pipe.send(outcome or CallOutcome({}, f"its process ended with exit code {job.exitcode}"))


def _relayed(job: Connection, pipe: Connection, sentinel: int) -> CallOutcome | None:
    """Forward messages of a job, and the answers back, until it ends; return its outcome, or None without one."""
    while True:
        ready = wait([job, pipe, sentinel])
        if pipe in ready:
            job.send(pipe.recv())
        elif job in ready:
            try:
                message = job.recv()
            except EOFError:
                return None
            if isinstance(message, CallOutcome):
                return message
            pipe.send(message)
        else:
            return None


def _run_job(pipe: Connection, inherited: Sequence[Connection], run: Run, task: Task) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for one in inherited:
        one.close()

    def report(readings: Readings, step: int | None) -> None:
        pipe.send((readings, step))
        if stop := pipe.recv():
            raise StopTrial(stop)

    reporting.have_received_by(report)
    pipe.send(_outcome(run, task))


def _outcome(run: Run, task: Task) -> CallOutcome:
    os.environ[SEED_VARIABLE] = str(task.seed)
    try:
        return run(task.job)
    except StopTrial:
        return CallOutcome({})


def _answered(report: reporting.Receiver, readings: Readings, step: int | None) -> str:
    """Report for a job; return the reason to stop, empty while it may continue."""
    try:
        report(readings, step)
    except StopTrial as stop:
        return str(stop)
    return ""


# --- asking and telling -----------------------------------------------------------------------------------------------


def evaluate(experiment: Experiment, runners: Sequence[Runner], job_of: Callable[[AskedTrial], Any]) -> None:
    """Ask for trials and run a job for each, by all runners at once, until the experiment has ended.

    An error of one runner ends all. The trial of an interrupted job, for example by Ctrl-C, is asked for again once its
    lease has ended.

    Args:
        experiment: The experiment.
        runners: Runners of the jobs.
        job_of: Returns the job of a trial.
    """
    if len(runners) == 1:
        _evaluate(experiment, runners[0], job_of)
        return
    with ThreadPoolExecutor(len(runners)) as pool:
        try:
            left = {pool.submit(_evaluate, experiment, runner, job_of) for runner in runners}
            while left:  # an interrupt may come just before the wait, which then does not see it
                done, left = futures.wait(left, _LOOK_SECONDS, futures.FIRST_COMPLETED)
                for one in done:
                    one.result()
        except BaseException:
            for runner in runners:
                runner.close()
            raise


def _evaluate(experiment: Experiment, runner: Runner, job_of: Callable[[AskedTrial], Any]) -> None:
    while True:
        trial = experiment.ask(_LOOK_SECONDS)
        if trial is None:
            if experiment.has_ended:
                return
            continue
        try:
            outcome = runner.run(Task(trial.seed, job_of(trial)), partial(_report, trial))
        except Exception as error:
            trial.fail(one_line(error))
            raise
        if outcome is None:
            return
        _tell(trial, outcome)


def _report(trial: AskedTrial, readings: Readings, step: int | None) -> None:
    trial.report(readings, step=step)


def _tell(trial: AskedTrial, outcome: CallOutcome) -> None:
    if trial.has_ended:
        return
    if outcome.failure:
        trial.fail(outcome.failure)
        return
    try:
        trial.tell(outcome.values)
    except KatibError as error:
        trial.fail(one_line(error))
