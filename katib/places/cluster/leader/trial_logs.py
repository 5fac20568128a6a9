"""Logs of trials in a DB manager, accessed with the rights of their namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from katib.engine.controllers.ports import TrialReport
from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.objects import Key
from katib.errors import AlreadyExistsError, ForbiddenError, UnavailableError, invalid
from katib.model.metrics import MetricLog
from katib.model.names import EXPERIMENT_LABEL
from katib.model.trials import missing_objective
from katib.model.types import Suggestion, Trial
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.injection.settings import collector_kind
from katib.places.cluster.leader.stores import check_leading
from katib.wire.rpc.db_manager_client import DbManagerClient


class DbManagerTrialLogs(TrialLogs):
    """Logs of trials in a DB manager. Writes raise UnavailableError while this replica does not lead.

    The DB manager has no compare-and-set: a delayed controller could remove readings of a job that another one started.

    Args:
        client: Client of the DB manager, with the rights of a namespace's controller.
        config: Names the components that cannot send a token.
        suggestion_of: Finds the Suggestion of an experiment, which names its early stopping algorithm.
    """

    def __init__(
        self,
        client: DbManagerClient,
        config: Callable[[], KatibConfig],
        suggestion_of: Callable[[Key], Suggestion | None],
        may_write: Callable[[], bool],
    ) -> None:
        super().__init__(client)
        self._client = client
        self._config = config
        self._suggestion_of = suggestion_of
        self._may_write = may_write

    def begin(self, trial: Trial) -> None:
        """Empty the log of a trial, and register its owner and the components that need no token."""
        check_leading(self._may_write)
        config = self._config()
        try:
            with _one_key():
                self._client.within(trial.namespace).begin(
                    trial.name,
                    reports_without_token=not config.collector_sends_token(collector_kind(trial)),
                    reads_without_token=not config.early_stopping_sends_token(self._early_stopping_of(trial)),
                )
        except AlreadyExistsError as error:
            remedy = "give the experiment another name"
            cause = "a trial of this name in another namespace has readings"
            raise invalid("metadata.name", cause, remedy, "trial-name-taken") from error

    def take_status(self, trial: Trial, readings: Sequence[MetricLog]) -> None:
        """Store the readings of the job's status."""
        check_leading(self._may_write)
        with _one_key():
            super().take_status(trial, readings)

    def summarize(self, trial: Trial, from_status: Sequence[MetricLog] = ()) -> TrialReport:
        """Return the observation, or if it is missing, why the DB manager refused readings."""
        objective = trial.spec.objective
        with _one_key():
            report = super().summarize(trial, from_status)
            if objective is None or missing_objective(objective, report.observation) is None:
                return report
            return TrialReport(report.observation, self._client.within(trial.namespace).refusal_of(trial.name))

    def end(self, trial: Trial) -> None:
        """Close the log of a trial: the DB manager accepts no further readings."""
        check_leading(self._may_write)
        with _one_key():
            self._client.within(trial.namespace).end(trial.name)

    def delete(self, trial: Trial) -> None:
        check_leading(self._may_write)
        super().delete(trial)

    def _early_stopping_of(self, trial: Trial) -> str:
        suggestion = self._suggestion_of(Key(trial.namespace, trial.metadata.labels.get(EXPERIMENT_LABEL, "")))
        spec = None if suggestion is None else suggestion.spec.early_stopping
        return "" if spec is None else spec.algorithm_name


@contextmanager
def _one_key() -> Iterator[None]:
    """Explain a refusal: the DB manager checks tokens with the key that signed them."""
    try:
        yield
    except ForbiddenError as error:
        raise UnavailableError(
            f"the DB manager does not take the controller for its own ({error}); restart both, so that they use one key"
        ) from error
