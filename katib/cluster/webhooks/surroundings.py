"""What the injection has to know about a trial beyond the trial itself."""

from __future__ import annotations

from collections.abc import Callable

from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import Suggestion, Trial
from katib.configuration.models import KatibConfig, MetricsCollectorConfig
from katib.controllers.kinds import SUGGESTION
from katib.errors import NotFoundError, UnavailableError
from katib.injection.settings import CollectorEntry, InjectionSettings, VolumeClaim
from katib.runtime.objects import Key, ObjectStore
from katib.services.cluster.kinds import object_name
from katib.services.cluster.plan import early_stopping_address

TRIAL_DIRECTORY_SETTING = "suggestion_trial_dir"
"""Setting of an algorithm whose trials share files: where the primary container sees them."""


class TrialSurroundings:
    """Finds the injection settings of trials. Thread-safe.

    Args:
        store: Where Suggestions are.
        config: Returns the KatibConfig in force.
        db_manager_address: Where pods reach the DB manager.
        native_sidecars: Whether the cluster has native sidecars.
        inject_security_context: Whether the collector gets the primary container's security context.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: Callable[[], KatibConfig],
        *,
        db_manager_address: str,
        native_sidecars: bool,
        inject_security_context: bool,
    ) -> None:
        self._store = store
        self._config = config
        self._db_manager_address = db_manager_address
        self._native_sidecars = native_sidecars
        self._inject_security_context = inject_security_context

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
            cluster_has_native_sidecars=self._native_sidecars,
            inject_security_context=self._inject_security_context,
            early_stopping_address=self._early_stopping(trial, suggestion, config),
            suggestion_volume=_volume(trial, suggestion),
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
        native_sidecar=config.native_sidecar is not False,
    )


def _volume(trial: Trial, suggestion: Suggestion | None) -> VolumeClaim | None:
    algorithm = suggestion.spec.algorithm if suggestion is not None else None
    if suggestion is None or algorithm is None:
        return None
    settings = {setting.name: setting.value for setting in algorithm.algorithm_settings}
    directory = settings.get(TRIAL_DIRECTORY_SETTING, "")
    if not directory:
        return None
    claim = object_name(suggestion.name, algorithm.algorithm_name)
    return VolumeClaim(directory, claim, f"{suggestion.name}/{trial.name}")
