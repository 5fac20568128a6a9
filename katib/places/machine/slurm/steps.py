"""Trials as steps of an allocation in which this process runs: `srun` for each, without asking the scheduler again.

A step that does not fit now waits in its `srun`, which Slurm wakes after a while. So one that follows another, whose
program has ended, is started when the `srun` of that one has ended, too: then there is room. An `srun` outlives this
process when that is killed, and so does its step; the next engine in the allocation finds steps by their names. A step
ends with its allocation.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from katib.engine.runtime.clock import Clock
from katib.errors import UnavailableError
from katib.places.machine.slurm.commands import JobState, Slurm, error_text, is_passing, refused
from katib.places.machine.slurm.scheduler import LOOK_SECONDS, SlurmSubmission
from katib.places.machine.slurm.script import ASKING, WITHIN

ALLOCATION_VARIABLE: Final = "SLURM_JOB_ID"

_HANDOVER_SECONDS: Final = 1.0
"""How long a step waits at most for the `srun` of another one to end."""

_log = logging.getLogger(__name__)


def step_environment(environment: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of `srun` for a pod.

    Args:
        environ: Of this process, which says in which allocation it is. How that was asked for says nothing of a step.
    """
    kept = {name: value for name, value in environ.items() if name in _OF_ALLOCATION}
    others = {name: value for name, value in environment.items() if not name.startswith("SLURM_")}
    return others | kept


_OF_ALLOCATION: Final = frozenset(
    {
        *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NUM_NODES"),
        *("SLURM_NNODES", "SLURM_CONF", "SLURM_CLUSTER_NAME"),
    }
)


class StepScheduler:
    """Starts, ends and follows steps. Has the methods of `Scheduler` for pods. Thread-safe.

    Args:
        allocation: Number of the job in which this process runs.
        on_end: Called on any thread once a step was cut off because the allocation ends.
    """

    def __init__(self, slurm: Slurm, clock: Clock, allocation: str, on_end: Callable[[], None]) -> None:
        self._slurm = slurm
        self._clock = clock
        self.allocation = allocation
        self._on_end = on_end
        self._changed = threading.Condition()
        self._processes: dict[SlurmSubmission, subprocess.Popen[str]] = {}
        self._adopted: dict[str, SlurmSubmission] = {}
        self._unsure: list[SlurmSubmission] = []  # perhaps cut off by the end of the allocation
        self._ending: set[SlurmSubmission] = set()  # whose programs have ended, and not their `srun`
        self._waiting: list[SlurmSubmission] = []  # for these, the first one first
        self._stopping = False

    def start(self) -> None:
        """Do nothing: a thread is started for steps that are followed."""

    def stop(self) -> None:
        """Follow nothing any more; steps continue."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def submit(self, submission: SlurmSubmission) -> None:
        """Start a step, unless an earlier engine has started it."""
        if submission.was_tried:
            self.follow(submission)
            return
        submission.job, submission.was_tried = self.allocation, True
        threading.Thread(target=self._run, args=(submission,), name="srun", daemon=True).start()

    def submit_again(self, submission: SlurmSubmission) -> None:
        submission.state, submission.is_unknown, submission.was_tried = None, False, False
        submission.launches += 1
        self.submit(submission)

    def follow(self, submission: SlurmSubmission) -> None:
        """Follow a step that an earlier engine started; if there is none, `is_unknown` is set."""
        submission.job, submission.was_tried = self.allocation, True
        with self._changed:
            if not self._adopted:
                threading.Thread(target=self._watch, name="slurm", daemon=True).start()
            self._adopted[submission.comment] = submission

    def forget(self, submission: SlurmSubmission) -> None:
        with self._changed:
            self._adopted.pop(submission.comment, None)
            if submission in self._processes:
                self._ending.add(submission)

    def end(self, submission: SlurmSubmission) -> None:
        """End a step that has not begun: its `srun` waits no longer."""
        with self._changed:
            submission.withdrawn = True
            process = self._processes.get(submission)
            self._changed.notify_all()
        if process is not None:
            process.send_signal(signal.SIGTERM)

    def kill(self, submission: SlurmSubmission) -> None:
        """End the `srun` of a step that has not begun."""
        with self._changed:
            process = self._processes.get(submission)
        if process is not None:
            process.kill()

    def signal(self, job: str, name: str, *, has_steps: bool = False) -> None:
        """Send a signal to all processes of a step; at SIGTERM its script continues if its containers are steps."""
        threading.Thread(target=self._signal, args=(job, name, has_steps), name="scancel", daemon=True).start()

    def signal_process(self, node: str, pid: int, name: str) -> None:
        """Send a signal to the process group of one pod in a step that others share."""
        argv = ["srun", f"--jobid={self.allocation}", "--overlap", "--nodes=1", "--ntasks=1", "--mem=0"]
        argv += [f"--nodelist={node}", "--chdir=/", "sh", "-c", f"kill -s {name} -- -{pid}"]
        threading.Thread(target=self._call, args=(argv,), name="srun-kill", daemon=True).start()

    def _call(self, argv: Sequence[str]) -> None:
        environment = step_environment({}, self._slurm.environment)
        environment["PATH"] = self._slurm.environment.get("PATH", os.defpath)
        try:
            done = self._slurm.run(argv, environment=environment)
        except (FileNotFoundError, UnavailableError) as error:
            _log.warning("Pod not signalled", extra={"cause": str(error)})
            return
        if done.returncode:
            _log.info("Pod not signalled", extra={"cause": error_text(done.stderr)})

    def look_soon(self) -> None:
        """Do nothing: how a step ended is known with its `srun`."""

    def ask(self, submission: SlurmSubmission) -> None:
        """Find out whether a step was cut off by the end of the allocation."""
        with self._changed:
            if submission in self._unsure:
                return
            self._unsure.append(submission)
            if len(self._unsure) == 1:
                threading.Thread(target=self._ask, name="slurm-allocation", daemon=True).start()

    def _ask(self) -> None:
        while True:
            with self._changed:
                asked = tuple(self._unsure)
            try:
                state = self._slurm.jobs().get(self.allocation)
            except UnavailableError:
                with self._changed:
                    self._clock.wait(self._changed, LOOK_SECONDS)
                    if self._stopping:
                        return
                continue
            is_ending = state is None or state.is_ending
            if is_ending:
                self._on_end()
            with self._changed:
                del self._unsure[: len(asked)]
                is_done = not self._unsure
            for submission in asked:
                submission.is_cut_off = is_ending
                submission.news()
            if is_done:
                return

    def _signal(self, job: str, name: str, has_steps: bool) -> None:
        try:
            mark, steps = f"{WITHIN}{job}:", self._slurm.steps(self.allocation) if has_steps else {}
            within = [number for step, number in steps.items() if step.startswith(mark)]
            if within:
                self._slurm.cancel(within, name)
            self._slurm.cancel([job], ASKING if within and name == "TERM" else name)
        except UnavailableError as error:
            _log.warning("Step not ended", extra={"step": job, "cause": str(error)})

    def _run(self, submission: SlurmSubmission) -> None:
        if not self._is_room(submission):
            return
        argv = ["srun", f"--jobid={self.allocation}", *submission.options, "/bin/sh", "-c", submission.script]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command
                argv,
                env=submission.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            submission.refusal = refused(f"srun cannot be started: {os.strerror(error.errno or 0)}")
            submission.news()
            return
        with self._changed:
            self._processes[submission] = process
            if submission.withdrawn:
                process.terminate()
        _, said = process.communicate()
        with self._changed:
            del self._processes[submission]
            self._ending.discard(submission)
            self._changed.notify_all()
        submission.looks += 1
        text = error_text(said)
        submission.problem = text if process.returncode and is_passing(text) else ""
        submission.state = JobState(_state(text) if process.returncode else "COMPLETED", text)
        submission.news()

    def _is_room(self, submission: SlurmSubmission) -> bool:
        """Wait until the `srun` has ended that a step follows; return False if the next engine is to start it."""
        with self._changed:
            self._waiting.append(submission)
            deadline = self._clock.monotonic() + _HANDOVER_SECONDS
            # Each that ends makes room for one, the first one.
            while len(self._ending) >= len(self._waiting) - self._waiting.index(submission):
                left = deadline - self._clock.monotonic()
                if left <= 0 or submission.withdrawn or self._stopping:
                    break
                self._clock.wait(self._changed, left)
            self._waiting.remove(submission)
            self._changed.notify_all()
            return not self._stopping

    def _watch(self) -> None:
        """Look for the steps of an earlier engine as long as there are some."""
        while True:
            with self._changed:
                followed = list(self._adopted.values())
            try:
                names, jobs = self._slurm.steps(self.allocation), self._slurm.jobs()
            except UnavailableError:
                followed = []
            else:
                names |= {state.comment: number for number, state in jobs.items() if not state.is_over}
            for submission in followed:
                submission.looks += 1
                is_elsewhere = submission.host != self.allocation and submission.is_in_allocation(jobs)
                submission.is_unknown = submission.comment not in names and not is_elsewhere
                submission.news()
            with self._changed:
                self._clock.wait(self._changed, LOOK_SECONDS)
                if self._stopping or not self._adopted:
                    self._adopted.clear()
                    return


def _state(text: str) -> str:
    """Return as which state a step ended whose `srun` says this."""
    words = {
        "oom": "OUT_OF_MEMORY",
        "out of memory": "OUT_OF_MEMORY",
        "time limit": "TIMEOUT",
        "node fail": "NODE_FAIL",
    }
    return next((state for word, state in words.items() if word in text.lower()), "FAILED")
