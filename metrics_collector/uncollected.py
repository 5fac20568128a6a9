"""The rules of trials whose readings pass through no collector of ours: they are pushed, by the program or for it.

A collector evaluates a trial's rules while it reads. Here the readings are asked for where they are stored, and the
same rules give the same verdicts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from katib.model.algorithms import StopVerdict
from katib.model.metrics import ObservationReader
from katib.model.types import Trial
from metrics_collector.early_stopping import RuleBook

_ANSWERS = 10
"""How many answers of the log are taken at a time; a trial that was pushed to for hours is caught up with step by step,
so that others need not wait."""

_EXPERIMENTS = 100
"""So many experiments are remembered; those that are over cannot be distinguished from those that are quiet."""


class UncollectedTrials:
    """Evaluates rules of trials from their stored logs. Fits `katib.engine.controllers.ports.GivenRules`. Thread-safe.

    Args:
        log: Has the readings.
    """

    def __init__(self, log: ObservationReader) -> None:
        self._log = log
        self._followed: OrderedDict[str, dict[str, _Followed]] = OrderedDict()

    def verdicts(self, trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
        """Return which of the trials of one experiment meet all their rules."""
        if not trials:
            return ()
        owners = trials[0].metadata.owner_references
        owner = owners[0].uid if owners else trials[0].namespace
        known = self._followed.pop(owner, {})
        followed = {trial.metadata.uid: known.get(trial.metadata.uid) or _Followed(trial) for trial in trials}
        self._followed[owner] = followed
        while len(self._followed) > _EXPERIMENTS:
            self._followed.popitem(last=False)  # what it was is found again in the log
        for metric in sorted(set().union(*(one.rules.metrics for one in followed.values()))):
            self._read([one for one in followed.values() if metric in one.rules.metrics], metric)
        return tuple(StopVerdict(one.trial.name, one.rules.verdict) for one in followed.values() if one.rules.verdict)

    def _read(self, followed: Sequence[_Followed], metric: str) -> None:
        by_name = {one.trial.name: one for one in followed}
        log = self._log.within(followed[0].trial.namespace)
        for _ in range(_ANSWERS):
            changes = log.changes({name: one.cursors.get(metric, 0) for name, one in by_name.items()}, metric)
            for change in changes:
                one = by_name[change.trial_name]
                one.cursors[metric] = change.cursor
                one.rules.observe(change.reading)
            if not changes:
                return


class _Followed:
    """The rules of a trial, and how far its log was read for each metric."""

    def __init__(self, trial: Trial) -> None:
        objective = trial.spec.objective
        name, type_ = ("", "") if objective is None else (objective.objective_metric_name, objective.type)
        self.trial = trial
        self.rules = RuleBook(trial.spec.early_stopping_rules, name, type_)
        self.cursors: dict[str, int] = {}
