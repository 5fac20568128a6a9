"""What the injection has to know about a trial beyond the trial itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from katib.api.checkpoints import checkpoint_directory
from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import Suggestion, Trial
from katib.cluster.configuration.models import KatibConfig, MetricsCollectorConfig
from katib.cluster.injection.settings import CollectorEntry, InjectionSettings, VolumeClaim
from katib.cluster.services.kinds import object_name
from katib.cluster.services.plan import early_stopping_address
from katib.controllers.kinds import SUGGESTION
from katib.errors import NotFoundError, UnavailableError
from katib.runtime.objects import Key, ObjectStore


class TrialSettings:
    """Finds the injection settings of trials. Thread-safe.

    Args:
        store: Where Suggestions are.
        config: Returns the KatibConfig in force.
        db_manager_address: Where pods reach the DB manager.
        native_sidecars: Returns whether native sidecars work on every node.
        inject_security_context: Whether the collector gets the primary container's security context.
        db_manager_variables: Returns what a trial brings to the DB manager, as environment variables.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: Callable[[], KatibConfig],
        *,
        db_manager_address: str,
        native_sidecars: Callable[[], bool],
        inject_security_context: bool,
        db_manager_variables: Callable[[Trial], Mapping[str, str]] = lambda _trial: {},
    ) -> None:
        self._store = store
        self._config = config
        self._db_manager_address = db_manager_address
        self._native_sidecars = native_sidecars
        self._inject_security_context = inject_security_context
        self._db_manager_variables = db_manager_variables

    def settings_for(self, trial: Trial) -> InjectionSettings:
        """Return how the pods of a trial are to be changed.

        Raises:
            UnavailableError: Its Suggestion is not there, though early stopping rules ask for a service.
        """
        config = self._config()
        suggestion = self._suggestion_of(trial)
        return InjectionSettings(
            db_manager_address=self._db_manager_address,
            collectors={entry.kind: _entry(entry) for entry in config.runtime.metrics_collectors},
            cluster_has_native_sidecars=self._native_sidecars(),
            inject_security_context=self._inject_security_context,
            early_stopping_address=self._early_stopping(trial, suggestion, config),
            suggestion_volume=_volume(trial, suggestion, config),
            db_manager_variables=self._db_manager_variables(trial),
        )

    def _suggestion_of(self, trial: Trial) -> Suggestion | None:
        name = trial.metadata.labels.get(EXPERIMENT_LABEL, "")
        try:
            return Suggestion.decode(self._store.get(SUGGESTION, Key(trial.namespace, name)))
        except NotFoundError:
            return None

    def _early_stopping(self, trial: Trial, suggestion: Suggestion | None, config: KatibConfig) -> str:
        if not trial.spec.early_stopping_rules:
            return ""
        if suggestion is None:
            raise UnavailableError(
                f"trial {trial.name}: its Suggestion is gone, which knows the early stopping service"
            )
        return early_stopping_address(suggestion, config)


def _entry(config: MetricsCollectorConfig) -> CollectorEntry:
    return CollectorEntry(
        image=config.image,
        image_pull_policy=config.image_pull_policy,
        resources=config.resources.complete(),
        wait_all_processes=config.wait_all_processes,
        native_sidecar=config.native_sidecar,
        patience_seconds=config.patience_seconds,
    )


def _volume(trial: Trial, suggestion: Suggestion | None, config: KatibConfig) -> VolumeClaim | None:
    """Return the claim where the trials of an experiment share checkpoints, if it has one."""
    algorithm = suggestion.spec.algorithm if suggestion is not None else None
    directory = checkpoint_directory(algorithm)
    if suggestion is None or algorithm is None or not directory:
        return None
    entry = config.suggestion(algorithm.algorithm_name)
    if entry is not None and entry.address:
        return None  # a service that is not managed here shares nothing with trials
    claim = object_name(suggestion.name, algorithm.algorithm_name)
    return VolumeClaim(directory, claim, f"{suggestion.name}/{trial.name}")
