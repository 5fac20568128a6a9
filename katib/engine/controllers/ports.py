"""What the controllers need from outside."""

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
    """What the log of a trial says of it.

    Attributes:
        observation: Its metrics; None without a reading of the objective.
        refusal: Why reports of it were refused; empty when none was.
    """

    observation: Observation | None = None
    refusal: str = ""


class SuggestionService(Protocol):
    """A client of the services of one experiment. Calls return at once; the future holds the answer or a KatibError.

    InvalidError: the service refused the experiment. UnavailableError: it did not answer in time, went away, or cannot
    reach what it needs. Any other: it broke on the question.
    """

    @property
    def reads_history(self) -> bool:
        """Whether the suggestion service wants the trials; where it does not, they need not be gathered."""

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
        """Ask whether the early stopping service judges trials while they run; no where there is no such service."""

    def judge(self, experiment: Experiment, trials: Sequence[Trial]) -> Future[tuple[StopVerdict, ...] | None]:
        """Ask which running trials should be stopped by what is known now; None where the service does not judge.

        Args:
            experiment: Whose they are.
            trials: All trials whose curves count: running, succeeded, stopped early.
        """


class ServiceDirectory(Protocol):
    """Finds, and where needed starts, the services an experiment asks for."""

    def service_for(self, experiment: Experiment) -> SuggestionService | None:
        """Return a client when the services are ready, None while they start (`on_change` tells when to ask again).

        Raises:
            TerminalError: They cannot be started, with the cause.
        """

    def waiting_for(self, experiment: Experiment) -> str:
        """Return what keeps the services from being ready that may pass, such as no room; empty where nothing does."""

    def release(self, experiment: Experiment) -> None:
        """Say that the experiment asks no more for now, so that idle services may stop. Releasing twice is fine."""


Verdicts = dict[str, str]
"""Why trials are to be stopped, by the trial's uid: for the Trial controller, which stores it. One thread adds to it
while others read. Nothing is lost with this memory: a service that is asked again gives the same verdict."""


class GivenRules(Protocol):
    """Evaluates the rules that trials were given when they were suggested, where no collector of ours does it."""

    def verdicts(self, trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
        """Return which of the trials meet all their rules; it may wait for the observation log.

        What it remembers between two calls is a cache; trials that are not named any more are forgotten.

        Args:
            trials: All running trials with rules of one experiment.

        Raises:
            UnavailableError: The log cannot be reached.
        """


class EventRecorder(Protocol):
    """Keeps the notable moments of an object for `katib describe`. Never fails, may drop."""

    def record(self, obj: Resource, *, warning: bool, reason: str, message: str) -> None:
        """Note that something happened to an object."""


@dataclass(frozen=True, slots=True)
class PodRefusal:
    """Why a job gets no pod: what decides about new pods refuses it.

    Attributes:
        message: Their words.
        since: When they said so first.
        is_final: Whether the same pod will be refused forever.
        is_passing: Whether the same pod may be let in without anybody changing anything: others used up the quota, or
            a webhook does not answer.
    """

    message: str
    since: datetime
    is_final: bool = False
    is_passing: bool = False


@dataclass(frozen=True, slots=True)
class UncollectedPod:
    """A pod without a collector of metrics.

    Attributes:
        message: Which one, and why.
        is_final: Whether nothing is done about it any more; otherwise it is about to be replaced.
    """

    message: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """What the pods of a trial say beyond what its job says. Parts of sentences; empty where there is nothing to tell.

    Attributes:
        waiting: Why a pod does not get to run, such as an image that cannot be pulled.
        is_trouble: Whether that is a fault, and not a matter of its turn.
        runs: Whether any pod runs; None where none was seen.
        place: On which nodes or cards, such as `on GPU 0`.
        last_failure: How a container ended that failed last, such as out of memory.
        restarts: How often containers of a pod of it were started again.
        metrics_report: Why the collector found no objective metric.
        collecting: Which collector may still store readings, or is not known to have ended.
        incomplete: Why readings of a pod that ended well are not stored.
        lost: The same of a pod that failed for nothing but its collector.
        uncollected: A pod that runs, or ran, without a collector; None where all have one.
        refusal: Why there is no pod at all; None where there is one, or it is not refused.
        queued: Where the job waits, and why, while something that queues jobs has it suspended.
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
    """Follows the pods of trials, where there are any. Answers from memory."""

    def update_of(self, trial: Trial) -> PodUpdate:
        """Return what the pods of a trial say."""

    def is_ending(self, trial: Trial) -> bool:
        """Return whether programs of a job may still run, though it may be gone."""

    def has_queues(self) -> bool:
        """Return whether jobs that name a queue are started by what queues them."""
