"""The one thread that calls Slurm: it submits, ends and follows the jobs of all pods.

Laws:

- All jobs are followed by one `squeue` at a time, however many they are: every `LOOK_SECONDS`, and soon after something
  that has to be known, but at most once in `SOON_SECONDS`. While no job is there, nothing is asked.
- A job is submitted until Slurm takes or refuses it; a job that passed its test is submitted a few times.
  If the answer is lost, it is looked for by its comment before it is submitted again.
- A job is cancelled until Slurm confirms its end.
- A job is known by its comment, and by its number only together with that: a controller that was killed forgets the
  jobs of its last seconds, and gives their numbers to others.
- A job is cancelled that was submitted for a pod that had run without it, or that Slurm still shows as running some
  time after its pod has ended: its controller had not saved that end when it was killed.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from katib.engine.runtime.clock import Clock
from katib.errors import Backoff, InvalidError, UnavailableError
from katib.places.machine.slurm.commands import JobState, Slurm

LOOK_SECONDS: Final = 5.0
"""How often all jobs are looked at. Starts and ends are seen earlier, by files."""

SOON_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0
"""How long an end waits for a command of Slurm that does not come back."""

_CANCEL_AGAIN_SECONDS: Final = 30.0
_END_SECONDS: Final = 10.0
"""How long the end of a job may take once its script has ended."""

_DOUBTS: Final = 6
"""How often a job may be refused that Slurm says it would take."""

_BACKOFF: Final = Backoff(1.0, 30.0)

OURS: Final = "katib:"
"""Begins the comment of a job of ours."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class SlurmSubmission:
    """A job that is to be submitted, is submitted, or is followed.

    Attributes:
        comment: By which it is found again; no two jobs have the same.
        news: Called on the thread of the scheduler after each change of the next attributes.
        job: Its number; empty until Slurm has taken it.
        state: As Slurm showed it last; None before.
        looks: How often Slurm was asked about it since it has a number.
        refusal: Why Slurm does not take it, for good; None otherwise.
        problem: Why it cannot be submitted or followed now; empty otherwise.
        host: The job in which it began, which is another one for a step of an allocation; empty before.
        is_cut_off: Whether that allocation ends; None until it was asked about.
        launches: How many jobs were submitted for it, each after the end of the one before.
        is_unknown: Whether Slurm does not know it any more, or it was withdrawn before it had a number.
        may_be_second: Whether a job that Slurm does not show may have been submitted for it before.
        earlier: Numbers of its jobs of which nothing was executed.
    """

    comment: str
    script: str
    options: Sequence[str]
    environment: Mapping[str, str]
    news: Callable[[], None]
    job: str = ""
    state: JobState | None = None
    looks: int = 0
    refusal: InvalidError | None = None
    problem: str = ""
    is_unknown: bool = False
    was_tried: bool = False
    withdrawn: bool = False
    attempts: int = 0
    host: str = ""
    is_cut_off: bool | None = None
    launches: int = 1
    may_be_second: bool = False
    earlier: set[str] = field(default_factory=set)
    signals: list[str] = field(default_factory=list)

    def is_in_allocation(self, jobs: Mapping[str, JobState]) -> bool:
        """Return whether the allocation still runs of which an earlier engine made it a step."""
        host = jobs.get(self.host)
        return host is not None and not host.is_over and not host.comment.startswith(OURS)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs, and nothing more comes."""
        return self.is_unknown or self.refusal is not None or (self.state is not None and self.state.is_over)


class Scheduler:
    """Submits, ends and follows jobs. Thread-safe; `start` it first."""

    def __init__(self, slurm: Slurm, clock: Clock) -> None:
        self._slurm = slurm
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[SlurmSubmission] = deque()
        self._followed: dict[str, SlurmSubmission] = {}  # by comment, from the first try on
        self._ending: dict[SlurmSubmission, float] = {}  # and when to say so to Slurm again
        self._signals: list[tuple[str, str]] = []
        self._needless: dict[str, float] = {}  # comments of pods that have ended: from when on their jobs are cancelled
        self._look_at = 0.0
        self._looked_at = -LOOK_SECONDS
        self._failures = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after all pending cancellations; running jobs continue."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)

    def submit(self, submission: SlurmSubmission) -> None:
        """Submit a job as soon as possible."""
        with self._changed:
            self._waiting.append(submission)
            self._changed.notify()

    def submit_again(self, submission: SlurmSubmission) -> None:
        """Submit a job again of which Slurm has executed nothing, and will not."""
        with self._changed:
            submission.earlier.add(submission.job)
            submission.job, submission.state, submission.is_unknown = "", None, False
            submission.was_tried, submission.attempts, submission.may_be_second = False, 0, True
            submission.launches += 1
            if submission not in self._waiting:
                self._waiting.append(submission)
            self._changed.notify()

    def follow(self, submission: SlurmSubmission) -> None:
        """Follow a job that an earlier engine submitted; if Slurm does not know it, `is_unknown` is set."""
        with self._changed:
            submission.was_tried = True
            self._followed[submission.comment] = submission
            self._look_at = 0.0
            self._changed.notify()

    def forget(self, submission: SlurmSubmission) -> None:
        """Follow a job no longer: its pod has ended."""
        with self._changed:
            self._followed.pop(submission.comment, None)
            self._ending.pop(submission, None)
            if submission in self._waiting:
                self._waiting.remove(submission)
            if submission.was_tried and not submission.is_over:
                seconds = 0.0 if submission.may_be_second else _END_SECONDS
                self._needless[submission.comment] = self._clock.monotonic() + seconds

    def end(self, submission: SlurmSubmission) -> None:
        """End a job: SIGTERM, and SIGKILL after Slurm's KillWait. One that waits does not start any more."""
        with self._changed:
            submission.withdrawn = True
            if submission in self._waiting and not submission.was_tried:
                self._waiting.remove(submission)
                submission.is_unknown = True
                submission.news()
            else:
                self._ending[submission] = 0.0
            self._changed.notify()

    def kill(self, submission: SlurmSubmission) -> None:
        """End the rest of a job by SIGKILL."""
        with self._changed:
            submission.signals.append("KILL")
            self._ending[submission] = 0.0
            self._changed.notify()

    def signal(self, job: str, signal: str) -> None:
        """Send a signal to all processes of a job or of a step, as `12.3`, once."""
        with self._changed:
            self._signals.append((job, signal))
            self._changed.notify()

    def look_soon(self) -> None:
        """Ask Slurm about all jobs soon."""
        with self._changed:
            self._look_at = min(self._look_at, self._looked_at + SOON_SECONDS)
            self._changed.notify()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while (wait := self._seconds_to_wait()) > 0:
                    self._clock.wait(self._changed, wait)
                if self._stopping and not self._must_end():
                    return
                may_submit = not self._stopping and (not self._failures or self._clock.monotonic() >= self._look_at)
                submission = self._waiting.popleft() if self._waiting and may_submit else None
            try:
                self._end_jobs()
                if submission is not None:
                    self._submit(submission)
                elif self._must_look():
                    self._look()
            except Exception:  # noqa: BLE001 - whatever it is, the log gets it and the jobs are followed further
                _log.exception("A call of Slurm failed")
                self._postpone()

    def _seconds_to_wait(self) -> float:
        now = self._clock.monotonic()
        if self._stopping or ((self._signals or self._waiting) and not self._failures):
            return 0.0
        times = list(self._ending.values())
        if self._followed or self._waiting or self._needless:
            times.append(self._look_at)
        return min(times, default=now + LOOK_SECONDS) - now

    def _must_end(self) -> bool:
        """Return whether something is to be ended now."""
        now = self._clock.monotonic()
        if any(at <= now for at in self._ending.values()):
            return True
        return not self._failures and (bool(self._signals) or any(at <= now for at in self._needless.values()))

    def _must_look(self) -> bool:
        if self._stopping:
            return any(at <= self._clock.monotonic() for at in self._needless.values())
        return bool(self._followed or self._needless) and self._clock.monotonic() >= self._look_at

    def _postpone(self) -> None:
        with self._changed:
            self._failures += 1
            self._look_at = self._clock.monotonic() + _BACKOFF.pause_seconds(self._failures)

    def _submit(self, submission: SlurmSubmission) -> None:
        may_be_known = submission.was_tried
        submission.may_be_second |= may_be_known
        with self._changed:
            self._followed[submission.comment] = submission
        if may_be_known and not self._find(submission):
            return
        if submission.job or submission.is_unknown:
            return
        submission.was_tried = True
        submission.attempts += 1
        try:
            submission.job = self._slurm.submit(submission.script, submission.options, submission.environment)
            submission.problem, self._failures = "", 0
        except InvalidError as error:
            if self._is_doubtful(submission):
                self._try_later(submission, UnavailableError(str(error)))
            else:
                submission.refusal = error
                self.forget(submission)
        except UnavailableError as error:
            self._try_later(submission, error)
        with self._changed:
            soon = self._clock.monotonic() + SOON_SECONDS
            if not self._failures and (self._look_at > soon or self._look_at < self._looked_at):
                self._look_at = soon
        submission.news()

    def _is_doubtful(self, submission: SlurmSubmission) -> bool:
        """Return whether Slurm would take a job that it has refused: its controller may have ended in that moment."""
        if submission.attempts > _DOUBTS:
            return False
        try:
            self._slurm.jobs()  # a controller that is away has refused nothing
            return not self._slurm.check(submission.options).refusal
        except UnavailableError:
            return True

    def _try_later(self, submission: SlurmSubmission, error: UnavailableError) -> None:
        submission.problem = str(error)
        with self._changed:
            self._waiting.appendleft(submission)
        self._postpone()

    def _find(self, submission: SlurmSubmission) -> bool:
        """Look for a job whose submission was not answered; return whether Slurm answers this time."""
        submission.was_tried = False  # it is not missed yet
        try:
            self._look(every=True)
        except UnavailableError as error:
            submission.was_tried = True
            self._try_later(submission, error)
            return False
        if not submission.job and submission.withdrawn:
            submission.is_unknown = True
            submission.news()
        return True

    def _look(self, *, every: bool = False) -> None:
        """Ask about all jobs.

        Args:
            every: Whether an error is for the caller.

        Raises:
            UnavailableError: Slurm does not answer, and the caller is to know it.
        """
        self._looked_at = self._clock.monotonic()
        try:
            jobs = self._slurm.jobs()
        except UnavailableError as error:
            self._postpone()
            for submission in list(self._followed.values()):
                submission.problem = str(error)
                submission.news()
            if every:
                raise
            return
        # Those that continue are last.
        oldest_first = sorted(jobs.items(), key=lambda job: (not job[1].is_over, len(job[0]), job[0]))
        numbers = {state.comment: number for number, state in oldest_first}
        with self._changed:
            self._failures, self._look_at = 0, self._clock.monotonic() + LOOK_SECONDS
            followed, waiting = list(self._followed.values()), set(self._waiting)
        self._cancel_needless(jobs)
        for submission in followed:
            state = jobs.get(submission.job)
            if state is None or state.comment != submission.comment:
                number = numbers.get(submission.comment, "")
                number = "" if number in submission.earlier else number
                submission.job, state = number or submission.job, jobs.get(number)
            submission.problem, submission.looks = "", submission.looks + 1
            if state is not None:
                submission.state = state
            elif submission.is_in_allocation(jobs):
                pass
            elif submission not in waiting and submission.was_tried and (submission.job or not submission.attempts):
                submission.is_unknown = True
            submission.news()

    def _cancel_needless(self, jobs: Mapping[str, JobState]) -> None:
        now = self._clock.monotonic()
        with self._changed:
            needless = dict(self._needless)
            for comment in needless:
                self._followed.pop(comment, None)
        left = {n: state.comment for n, state in jobs.items() if state.comment in needless and not state.is_over}
        if due := [number for number, comment in left.items() if needless[comment] <= now]:
            self._slurm.cancel(due)
        with self._changed:
            for comment, at in needless.items():
                if at <= now or comment not in left.values():
                    self._needless.pop(comment, None)

    def _end_jobs(self) -> None:
        now = self._clock.monotonic()
        with self._changed:
            signals, self._signals = self._signals, []
        for i, (job, signal) in enumerate(signals):
            try:
                self._slurm.cancel([job], signal)
            except UnavailableError:
                with self._changed:
                    self._signals[:0] = signals[i:]
                raise
        with self._changed:
            due = [submission for submission, at in self._ending.items() if at <= now]
            for submission in due:
                self._ending[submission] = now + _CANCEL_AGAIN_SECONDS
                if submission.is_over:
                    del self._ending[submission]
            ending = [submission for submission in due if submission.job and not submission.is_over]
        if not ending:
            return
        try:
            for signal in ("", "KILL"):
                if numbers := [s.job for s in ending if (signal in s.signals) == bool(signal)]:
                    self._slurm.cancel(numbers, signal)
        except UnavailableError:
            with self._changed:
                self._ending.update(dict.fromkeys(ending, now + SOON_SECONDS))
            return
        self.look_soon()
