"""Early stopping rules of trials without a collector: their readings are pushed, by the program or for it.

A collector evaluates a trial's rules while it reads. Here the readings are queried from the log, and the same rules
give the same verdicts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from katib.model.algorithms import StopVerdict
from katib.model.metrics import ObservationReader
from katib.model.types import Trial
from metrics_collector.early_stopping import RuleBook

_ANSWERS = 10
"""Answers of the log per round; a trial with hours of pushed readings is caught up with in steps, so that others need
not wait."""

_EXPERIMENTS = 100
"""Experiments remembered at once; ended ones cannot be distinguished from quiet ones."""


class UncollectedTrials:
    """Evaluates the rules of trials on their logs. Thread-safe. Implements `engine.controllers.ports.GivenRules`."""

    def __init__(self, log: ObservationReader) -> None:
        self._log = log
        self._followed: OrderedDict[str, dict[str, _FollowedTrial]] = OrderedDict()

    def verdicts(self, trials: Sequence[Trial]) -> tuple[StopVerdict, ...]:
        """Return the verdicts over those trials of one experiment that meet all their rules."""
        if not trials:
            return ()
        owners = trials[0].metadata.owner_references
        owner = owners[0].uid if owners else trials[0].namespace
        known = self._followed.pop(owner, {})
        followed = {trial.metadata.uid: known.get(trial.metadata.uid) or _FollowedTrial(trial) for trial in trials}
        self._followed[owner] = followed
        while len(self._followed) > _EXPERIMENTS:
            self._followed.popitem(last=False)  # its state is rebuilt from the log
        for metric in sorted(set().union(*(one.rules.metrics for one in followed.values()))):
            self._read([one for one in followed.values() if metric in one.rules.metrics], metric)
        return tuple(StopVerdict(one.trial.name, one.rules.verdict) for one in followed.values() if one.rules.verdict)

    def _read(self, followed: Sequence[_FollowedTrial], metric: str) -> None:
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


class _FollowedTrial:
    """The rules of a trial, and the read position of its log for each metric."""

    def __init__(self, trial: Trial) -> None:
        objective = trial.spec.objective
        name, type_ = ("", "") if objective is None else (objective.objective_metric_name, objective.type)
        self.trial = trial
        self.rules = RuleBook(trial.spec.early_stopping_rules, name, type_)
        self.cursors: dict[str, int] = {}
