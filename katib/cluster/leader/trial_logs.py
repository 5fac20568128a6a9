"""The logs of trials behind a DB manager, asked for in the name of their namespace."""

from __future__ import annotations

from collections.abc import Callable

from katib.api.at_best import POINTS, with_at_best
from katib.api.names import EXPERIMENT_LABEL
from katib.api.trials import is_available
from katib.api.types import Suggestion, Trial
from katib.cluster.configuration.models import KatibConfig
from katib.cluster.injection.paths import collector_kind
from katib.controllers.ports import TrialReport
from katib.errors import AlreadyExistsError, ForbiddenError, UnavailableError, invalid
from katib.rpc.db_manager_client import DbManagerClient
from katib.rpc.tokens import Claims, Role, Tokens
from katib.runtime.objects import Key


class DbManagerTrialLogs:
    """Fits `katib.controllers.ports.TrialLogs`. Thread-safe.

    Args:
        client: To the DB manager.
        tokens: Returns what the installation signs with.
        config: Says who cannot send a token.
        suggestion_of: Finds the Suggestion of an experiment, which names its early stopping algorithm.
    """

    def __init__(
        self,
        client: DbManagerClient,
        tokens: Callable[[], Tokens],
        config: Callable[[], KatibConfig],
        suggestion_of: Callable[[Key], Suggestion | None],
    ) -> None:
        self._client = client
        self._tokens = tokens
        self._config = config
        self._suggestion_of = suggestion_of

    def begin(self, trial: Trial) -> None:
        """Empty the log of a trial, and have the DB manager know whose it is and who may do without a token."""
        config = self._config()
        try:
            self.log_of(trial).begin(
                trial.name,
                reports_without_token=not config.collector_sends_token(collector_kind(trial)),
                reads_without_token=not config.early_stopping_sends_token(self._early_stopping_of(trial)),
            )
        except AlreadyExistsError as error:
            remedy = "give the experiment another name"
            cause = "a trial of this name in another namespace has readings"
            raise invalid("metadata.name", cause, remedy, "trial-name-taken") from error
        except ForbiddenError as error:
            raise _mismatch(error) from error

    def summarize(self, trial: Trial) -> TrialReport:
        """Return what was observed, and if that is nothing why the DB manager refused it."""
        objective = trial.spec.objective
        if objective is None:
            return TrialReport()
        log = self.log_of(trial)
        try:
            observation = with_at_best(
                objective,
                log.summarize(trial.name, objective.metric_names),
                lambda metric: log.curve(trial.name, metric, POINTS),
            )
            known = is_available(objective, observation)
            return TrialReport(observation, "" if known else log.refusal_of(trial.name))
        except ForbiddenError as error:
            raise _mismatch(error) from error

    def end(self, trial: Trial) -> None:
        """Close the log of a trial: the DB manager takes no more readings of it."""
        try:
            self.log_of(trial).end(trial.name)
        except ForbiddenError as error:
            raise _mismatch(error) from error

    def delete(self, trial: Trial) -> None:
        """Remove the log of a trial."""
        self.log_of(trial).delete(trial.name)

    def log_of(self, trial: Trial) -> DbManagerClient:
        """Return the DB manager as it answers the controller of a trial's namespace."""
        return self._client.speaking_as(self._tokens().token_of(Claims(Role.CONTROLLER, trial.namespace)))

    def _early_stopping_of(self, trial: Trial) -> str:
        suggestion = self._suggestion_of(Key(trial.namespace, trial.metadata.labels.get(EXPERIMENT_LABEL, "")))
        spec = None if suggestion is None else suggestion.spec.early_stopping
        return "" if spec is None else spec.algorithm_name


def _mismatch(error: ForbiddenError) -> UnavailableError:
    return UnavailableError(
        f"the DB manager does not take the controller for its own ({error}); restart both, so that they use one key"
    )
