"""What the controllers need from outside."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from katib.api.metrics import MetricLog
from katib.api.suggestions import SuggestedAssignment, SuggestionsReply
from katib.api.types import EarlyStoppingRule, Experiment, Observation, Resource, Trial

__all__ = [
    "NO_NEWS",
    "EventRecorder",
    "ObservationLog",
    "PodNews",
    "PodWatcher",
    "ServiceDirectory",
    "SuggestedAssignment",
    "SuggestionService",
    "SuggestionsReply",
]


class ObservationLog(Protocol):
    """The time series of metrics, by trial name. Thread-safe. Raises UnavailableError when it cannot be reached."""

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings; all or none."""

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return min, max and latest of these metrics, in this order; None when the first one has no reading.

        A metric without usable number has `unavailable` as min and max; latest is the last text.
        """

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial; an unknown trial is fine."""


class SuggestionService(Protocol):
    """A client of the services of one experiment. Calls return at once; the future holds the answer or a KatibError.

    InvalidError: the service refused the experiment. UnavailableError: it did not answer in time or went away.
    """

    @property
    def reads_history(self) -> bool:
        """Whether the suggestion service wants the trials; where it does not, they need not be gathered."""

    def validate(self, experiment: Experiment) -> Future[None]:
        """Ask the suggestion service, and the early stopping service if any, whether they accept the experiment."""

    def get_suggestions(
        self, experiment: Experiment, trials: Sequence[Trial], *, current_request: int, total_request: int
    ) -> Future[SuggestionsReply]:
        """Ask for assignments."""

    def get_early_stopping_rules(
        self, experiment: Experiment, trials: Sequence[Trial]
    ) -> Future[tuple[EarlyStoppingRule, ...]]:
        """Ask for the rules that the next trials start with."""


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


class EventRecorder(Protocol):
    """Keeps the notable moments of an object for `katib describe`. Never fails, may drop."""

    def record(self, obj: Resource, *, warning: bool, reason: str, message: str) -> None:
        """Note that something happened to an object."""


@dataclass(frozen=True, slots=True)
class PodNews:
    """What the pods of a trial say beyond what its job says. Parts of sentences; empty where there is nothing to tell.

    Attributes:
        waiting: Why no pod gets to run, such as an image that cannot be pulled.
        last_failure: How a container ended that failed last, such as out of memory.
        metrics_report: Why the collector found no objective metric.
    """

    waiting: str = ""
    last_failure: str = ""
    metrics_report: str = ""


NO_NEWS = PodNews()


class PodWatcher(Protocol):
    """Follows the pods of trials, where there are any. Answers from memory."""

    def news_of(self, trial: Trial) -> PodNews:
        """Return what the pods of a trial say."""
