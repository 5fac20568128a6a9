"""Removes logs of ended trials, by age or by number.

A log is removed as a whole, in transactions of bounded size. The trial's observation stays in its status, so that no
decision made by it changes; its curve is lost, also to early stopping. The log of an experiment's best trial stays
while it is the best; with several objectives, so do those of the trials that its status names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key
from katib.model.metrics import RetentionPolicy
from katib.model.names import EXPERIMENT_LABEL
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Experiment, ExperimentStatus, Trial


def expired(trials: Iterable[Trial], best: frozenset[Key], policy: RetentionPolicy, now: datetime) -> list[Trial]:
    """Return the trials whose logs may be removed."""
    ended: defaultdict[Key, list[tuple[datetime, str, Trial]]] = defaultdict(list)
    for trial in trials:
        end = trial.status.completion_time
        if end is not None and trial_state(trial) not in ACTIVE:
            experiment = Key(trial.namespace, trial.metadata.labels.get(EXPERIMENT_LABEL, ""))
            ended[experiment].append((end, trial.name, trial))
    found: list[Trial] = []
    for group in ended.values():
        group.sort(key=lambda entry: entry[:2], reverse=True)
        for place, (end, name, trial) in enumerate(group):
            too_old = policy.max_age_seconds is not None and (now - end).total_seconds() > policy.max_age_seconds
            too_many = policy.max_trials is not None and place >= policy.max_trials
            if (too_old or too_many) and Key(trial.namespace, name) not in best:
                found.append(trial)
    return found


class Retention:
    """Finds and removes expired logs. Used by one thread: of the only engine, or of the leader.

    Args:
        policy: Returns the current policy; None keeps all logs.
    """

    def __init__(
        self,
        experiments: Callable[[], Iterable[Experiment]],
        trials: Callable[[], Iterable[Trial]],
        logs: TrialLogs,
        policy: Callable[[], RetentionPolicy | None],
        clock: Clock,
    ) -> None:
        self._experiments = experiments
        self._trials = trials
        self._logs = logs
        self._policy = policy
        self._clock = clock
        self._removed: set[str] = set()  # uids; not stored, so a restart removes them once more

    def look(self) -> None:
        """Remove expired logs.

        Raises:
            KatibError: The log cannot be reached; the next call removes the rest.
        """
        policy = self._policy()
        if policy is None or (policy.max_age_seconds is None and policy.max_trials is None):
            return
        best = frozenset(
            Key(experiment.namespace, name)
            for experiment in self._experiments()
            for name in best_names(experiment.status)
        )
        found = expired(self._trials(), best, policy, self._clock.now())
        self._removed &= {trial.metadata.uid for trial in found}
        for trial in found:
            if trial.metadata.uid not in self._removed:
                self._logs.delete(trial)
                self._removed.add(trial.metadata.uid)


def best_names(status: ExperimentStatus) -> Iterator[str]:
    """Yield an experiment's best trial and, with several objectives, those that its status names."""
    yield status.current_optimal_trial.best_trial_name
    if status.pareto_set is not None:
        yield from (trial.best_trial_name for trial in status.pareto_set.trials)
