"""Interfaces that the controllers require."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from katib.model.algorithms import StopVerdict, SuggestionsReply
from katib.model.types import EarlyStoppingRule, Experiment, Observation, Resource, Trial

__all__ = [
    "NO_UPDATE",
    "EventRecorder",
    "GivenRules",
    "PodRefusal",
    "PodUpdate",
    "PodWatcher",
    "ServiceDirectory",
    "StopVerdict",
    "SuggestionService",
    "SuggestionsReply",
    "TrialReport",
    "UncollectedPod",
]


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Summary of a trial's log.

    Attributes:
        observation: Its metrics; None without a reading of the objective.
        refusal: Why its reports were refused; empty if none was.
    """

    observation: Observation | None = None
    refusal: str = ""


class SuggestionService(Protocol):
    """A client of one experiment's services. Calls return at once; the future holds the answer or a KatibError.

    InvalidError: the service refused the experiment. UnavailableError: it did not answer in time, went away, or cannot
    reach a dependency. Any other: it failed on the question.
    """

    @property
    def reads_history(self) -> bool:
        """Whether the suggestion service needs the trials; if not, they are not collected."""

    def validate(self, experiment: Experiment) -> Future[None]:
        """Ask the suggestion service, and the early stopping service if any, whether they accept the experiment."""

    def get_suggestions(
        self,
        experiment: Experiment,
        trials: Sequence[Trial],
        *,
        current_request: int,
        total_request: int,
        earlier: Sequence[Trial] = (),
    ) -> Future[SuggestionsReply]:
        """Ask for assignments, given the experiment's own trials and earlier ones to learn from."""

    def get_early_stopping_rules(
        self, experiment: Experiment, trials: Sequence[Trial]
    ) -> Future[tuple[EarlyStoppingRule, ...]]:
        """Ask for the rules that the next trials start with."""

    def judges(self, experiment: Experiment) -> Future[bool]:
        """Ask whether the early stopping service judges running trials; False if there is no such service."""

    def judge(self, experiment: Experiment, trials: Sequence[Trial]) -> Future[tuple[StopVerdict, ...] | None]:
        """Ask which running trials should be stopped by the current readings; None if the service does not judge.

        Args:
            trials: All trials whose curves count: running, succeeded, stopped early.
        """


class ServiceDirectory(Protocol):
    """Finds, and if needed starts, the services of an experiment."""

    def service_for(self, experiment: Experiment) -> SuggestionService | None:
        """Return a client if the services are ready, None while they start (`on_change` tells when to ask again).

        Raises:
            TerminalError: They cannot be started, with the cause.
        """

    def waiting_for(self, experiment: Experiment) -> str:
        """Return the transient cause that delays the services, such as missing capacity; empty if there is none."""

    def release(self, experiment: Experiment) -> None:
        """Release the services of an experiment, so that idle ones may stop; idempotent."""


Verdicts = dict[str, str]
"""Causes for stopping trials, by the trial's uid; the Trial controller stores them. One thread adds to it while others
read. It may be lost: a service that is asked again gives the same verdict."""


class GivenRules(Protocol):
    """Evaluates the rules that trials were given at suggestion time, if no built-in collector does."""

    def verdicts(self, trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
        """Return the trials that meet all their rules; it may wait for the observation log.

        State kept between two calls is a cache; trials that are no longer passed are forgotten.

        Args:
            trials: All running trials with rules of one experiment.

        Raises:
            UnavailableError: The log cannot be reached.
        """


class EventRecorder(Protocol):
    """Records the events of an object for `katib describe`. Never fails, may drop events."""

    def record(self, obj: Resource, *, warning: bool, reason: str, message: str) -> None:
        """Record an event of an object."""


@dataclass(frozen=True, slots=True)
class PodRefusal:
    """Refusal of a job's pods by admission.

    Attributes:
        is_final: Whether the same pod will be refused forever.
        is_passing: Whether the same pod may be admitted later without a change: a quota is used up, or a webhook does
            not answer.
    """

    message: str
    since: datetime
    is_final: bool = False
    is_passing: bool = False


@dataclass(frozen=True, slots=True)
class UncollectedPod:
    """A pod without a metrics collector.

    Attributes:
        is_final: Whether it stays; otherwise it is about to be replaced.
    """

    message: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """State of a trial's pods beyond the job's status. Texts are parts of sentences; empty means nothing to report.

    Attributes:
        waiting: Why a pod does not run, such as an image that cannot be pulled.
        is_trouble: Whether that is a fault, and not a matter of scheduling.
        runs: Whether any pod runs; None if none was seen.
        place: Its nodes or cards, such as `on GPU 0`.
        last_failure: Last failure of a container, such as out of memory.
        metrics_report: Why the collector found no objective metric.
        collecting: Collector that may still store readings, or is not known to have ended.
        incomplete: Why readings of a pod that succeeded are not stored.
        lost: The same for a pod that failed only because of its collector.
        uncollected: A pod that runs, or ran, without a collector; None if all have one.
        refusal: Why there is no pod at all; None if there is one, or it is not refused.
        queued: Queue and cause of waiting, while a queue controller has the job suspended.
    """

    waiting: str = ""
    is_trouble: bool = True
    runs: bool | None = None
    place: str = ""
    last_failure: str = ""
    restarts: int = 0
    metrics_report: str = ""
    collecting: str = ""
    incomplete: str = ""
    lost: str = ""
    uncollected: UncollectedPod | None = None
    refusal: PodRefusal | None = None
    queued: str = ""


NO_UPDATE = PodUpdate()


class PodWatcher(Protocol):
    """Watches the pods of trials, if there are any. Answers from memory."""

    def update_of(self, trial: Trial) -> PodUpdate:
        """Return the state of a trial's pods."""

    def is_ending(self, trial: Trial) -> bool:
        """Return whether programs of a job may still run, though it may be deleted."""

    def has_queues(self) -> bool:
        """Return whether a queue controller starts the jobs that name a queue."""
