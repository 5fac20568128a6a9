"""Removes logs of trials that are over, by age or by number.

A log goes whole, and in transactions of bounded size. The observation of its trial stays in the trial's status, so that
nothing that was decided by it changes; what goes are the curve and what early stopping could have learnt of it. The log
of an experiment's best trial stays as long as it is the best; with several objectives, those of the trials that its
status names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from katib.engine.controllers.trial.observing import TrialLogs
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key
from katib.model.configuration import RetentionConfig
from katib.model.names import EXPERIMENT_LABEL
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Experiment, ExperimentStatus, Trial

PERIOD_SECONDS = 60.0

COMPLAINT = "Old logs or checkpoints of trials not removed"
"""Said before the reason, where a `katib.engine.runtime.periodic.PeriodicTasks` looks."""


def expired(trials: Iterable[Trial], best: frozenset[Key], policy: RetentionConfig, now: datetime) -> list[Trial]:
    """Return the trials whose logs may go.

    Args:
        trials: Of all experiments.
        best: The best trials, whose logs stay.
        policy: What is kept.
        now: The time.
    """
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
    """Looks for logs that may go, and removes them. Used by one thread: of the only engine, or of the leader.

    Args:
        experiments: All there are.
        trials: All there are.
        logs: Whose logs go.
        policy: What is kept, as it is now.
        clock: Tells the time.
    """

    def __init__(
        self,
        experiments: Callable[[], Iterable[Experiment]],
        trials: Callable[[], Iterable[Trial]],
        logs: TrialLogs,
        policy: Callable[[], RetentionConfig],
        clock: Clock,
    ) -> None:
        self._experiments = experiments
        self._trials = trials
        self._logs = logs
        self._policy = policy
        self._clock = clock
        self._removed: set[str] = set()  # uids; after a restart, what is removed already is removed once more

    def look(self) -> None:
        """Remove what may go.

        Raises:
            KatibError: The log cannot be reached; what is left goes the next time.
        """
        policy = self._policy()
        if policy == RetentionConfig():
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
    """Yield the best trial of an experiment, and of several objectives those that the status names."""
    yield status.current_optimal_trial.best_trial_name
    if status.pareto_set is not None:
        yield from (trial.best_trial_name for trial in status.pareto_set.trials)
