"""Runs of each configuration: their means, and the next runs to start.

Theory of operation: a configuration is *under way* while a run of it is active; *over* once it has all its runs, a run
was stopped early, its first runs brought no value, or it cannot win the race; else *open*. Among those over, the one
with the best mean is the best, a larger number of runs first: a single lucky run beats no complete configuration.

Law: everything follows from the trials, in any order of events, so a restart changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, NamedTuple

from msgspec import structs

from katib.model.conditions import set_condition
from katib.model.features.repeats.race import Sample, Spread, cannot_win
from katib.model.metrics import is_usable
from katib.model.names import BY_DEFAULT, CHOSEN_BY_LABEL, trial_name
from katib.model.trials import ACTIVE, ELIGIBLE, is_feasible, objective_number, trial_state
from katib.model.trials import cost as signed
from katib.model.types import (
    UNAVAILABLE,
    Metric,
    ObjectiveSpec,
    ObjectMeta,
    Observation,
    Trial,
    TrialAssignment,
    TrialSpec,
    TrialState,
    TrialStatus,
)

FIRST_RUN_LABEL: Final = "katib.kubeflow.org/repeats-of"
"""On a trial that runs the configuration of another one again: the name of that one."""

_LONGEST_NAME: Final = 63


def first_run(trial: Trial) -> str:
    """Return the name of the first run of a trial's configuration, which may be the trial itself."""
    return trial.metadata.labels.get(FIRST_RUN_LABEL, trial.name)


class RunResult(NamedTuple):
    """A trial in the eyes of its configuration; the cost is None without a finite value."""

    state: TrialState
    cost: float | None
    status: TrialStatus


class Summary(NamedTuple):
    """The runs of a configuration, added up.

    Attributes:
        sample: Costs of the runs that succeeded; if there are none, of those stopped early; None without a value.
        number: Number of runs that succeeded with a value.
        active: Number of active runs.
        is_given_up: Whether no run follows, however many there are.
        status: Status of the mean: that of the first run with a value, else of the first run.
        is_feasible: Whether the means satisfy the constraints.
    """

    sample: Sample | None
    number: int
    active: int
    is_given_up: bool
    status: TrialStatus
    is_feasible: bool


@dataclass(slots=True)
class Configuration:
    """The runs of one configuration, by name.

    Attributes:
        assignment: Of the first run; of any other one if that was deleted.
        objective: Of its trials.
    """

    assignment: TrialAssignment
    objective: ObjectiveSpec
    runs: dict[str, RunResult] = field(default_factory=dict)
    _summary: Summary | None = None

    @property
    def name(self) -> str:
        """The name of its first run."""
        return self.assignment.name

    def put(self, name: str, run: RunResult) -> None:
        self.runs[name], self._summary = run, None

    def remove(self, name: str) -> None:
        del self.runs[name]
        self._summary = None

    def counted(self) -> list[RunResult]:
        """Return the runs whose mean is its value: those that succeeded, else those stopped early, in order."""
        valued = [run for run in self._ordered() if run.cost is not None and run.state in ELIGIBLE]
        return [run for run in valued if run.state is TrialState.SUCCEEDED] or valued

    def summary(self) -> Summary:
        """Return its runs, added up; computed once for each change."""
        if self._summary is None:
            self._summary = self._added_up()
        return self._summary

    def _ordered(self) -> list[RunResult]:
        return [self.runs[name] for name in sorted(self.runs, key=lambda name: (len(name), name))]

    def _added_up(self) -> Summary:
        runs, valued = self._ordered(), self.counted()
        done = [run for run in valued if run.state is TrialState.SUCCEEDED]
        stopped = any(run.state is TrialState.EARLY_STOPPED for run in runs)
        active = sum(run.state in ACTIVE for run in runs)
        shown = (valued or runs)[0].status
        if valued:
            shown = structs.replace(shown, observation=mean_observation([run.status.observation for run in valued]))
        return Summary(
            sample_of([run.cost for run in valued if run.cost is not None]) if valued else None,
            len(done),
            active,
            stopped or (not done and active < len(runs)),
            shown,
            is_feasible(self.objective, shown.observation),
        )

    def trial(self, status: TrialStatus) -> Trial:
        """Return a trial with its name and parameters, and a status."""
        labels, given = self.assignment.labels, self.assignment.parameter_assignments
        return Trial(
            metadata=ObjectMeta(name=self.name, uid=f"mean-{self.name}", labels=labels),
            spec=TrialSpec(objective=self.objective, parameter_assignments=given, labels=labels),
            status=status,
        )

    def next_runs(self, count: int) -> Iterator[TrialAssignment]:
        """Yield further runs."""
        labels = {name: text for name, text in self.assignment.labels.items() if name != CHOSEN_BY_LABEL}
        number = 1
        while count > 0:
            number += 1
            name = f"{self.name}-{number}"
            if len(name) > _LONGEST_NAME:  # a service named the first one
                name = trial_name("", self.name[:40].rstrip("-"), name)
            if name not in self.runs:
                yield structs.replace(self.assignment, name=name, labels={**labels, FIRST_RUN_LABEL: self.name})
                count -= 1


def sample_of(costs: Sequence[float]) -> Sample:
    """Return the mean, number and squared deviations of costs."""
    mean = fmean(costs)
    return Sample(mean, len(costs), math.fsum((cost - mean) ** 2 for cost in costs))


def mean_observation(observations: Sequence[Observation | None]) -> Observation:
    """Return the means of all summary values; a value that is no finite number in one run is unavailable."""
    found = [one for one in observations if one is not None]
    names = dict.fromkeys(metric.name for one in found for metric in one.metrics)
    return Observation(metrics=tuple(_mean([one.metric(name) for one in found], name) for name in names))


def _mean(metrics: Sequence[Metric | None], name: str) -> Metric:
    def of(field: str) -> str:
        texts = [UNAVAILABLE if metric is None else str(getattr(metric, field)) for metric in metrics]
        return f"{fmean(map(float, texts)):.9g}" if all(map(is_usable, texts)) else UNAVAILABLE

    mean = of("mean") if any(metric is not None and metric.mean for metric in metrics) else ""
    return Metric(name=name, min=of("min"), max=of("max"), latest=of("latest"), mean=mean)


@dataclass(slots=True)
class RepeatedRuns:
    """The configurations of an experiment whose trials are repeated, updated event by event."""

    configurations: dict[str, Configuration] = field(default_factory=dict)
    _first: dict[str, str] = field(default_factory=dict)
    """The first run of each trial's configuration."""

    @property
    def total(self) -> int:
        """Number of existing trials."""
        return len(self._first)

    def add(self, trial: Trial) -> None:
        first = first_run(trial)
        objective, state = trial.spec.objective or ObjectiveSpec(), trial_state(trial)
        known = self.configurations.get(first)
        if known is None or first == trial.name:
            labels = {name: text for name, text in trial.spec.labels.items() if name != FIRST_RUN_LABEL}
            assignment = TrialAssignment(
                name=first,
                parameter_assignments=trial.spec.parameter_assignments,
                early_stopping_rules=trial.spec.early_stopping_rules,
                labels=labels,
            )
            runs = {} if known is None else known.runs
            known = self.configurations[first] = Configuration(assignment, objective, runs)
        value = objective_number(objective, trial.status.observation) if state in ELIGIBLE else None
        known.put(trial.name, RunResult(state, None if value is None else signed(objective, value), trial.status))
        self._first[trial.name] = first

    def remove(self, name: str) -> None:
        if (first := self._first.pop(name, None)) is None:
            return
        self.configurations[first].remove(name)
        if not self.configurations[first].runs:
            del self.configurations[first]


def ranked(trials: Iterable[Trial], repeats: int) -> list[tuple[Sample, Trial]]:
    """Return the feasible configurations with a run that succeeded, each with its mean, the best first."""
    runs = RepeatedRuns()
    for trial in trials:
        runs.add(trial)
    found = [(one.summary(), one) for one in runs.configurations.values()]
    pairs = [
        (added.sample, one.trial(added.status))
        for added, one in found
        if added.sample is not None and added.number and added.is_feasible
    ]
    return sorted(pairs, key=lambda pair: (-min(pair[0].number, repeats), pair[0].mean, pair[1].name))


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a race.

    Attributes:
        best: The best configuration that is over; None if none has a value.
        open: The open configurations, those with the most runs first, with the number of runs to come.
        under_way: Names of those with an active run.
        reserved: Number of runs to come of all that are open or under way.
    """

    best: Configuration | None
    open: Mapping[str, int]
    under_way: frozenset[str]
    reserved: int


def standing_of(configurations: Mapping[str, Configuration], repeats: int) -> Standing:
    """Return the state of a race with this many runs of each configuration."""
    summaries = {name: one.summary() for name, one in configurations.items()}
    samples = [found.sample for found in summaries.values() if found.sample is not None and found.number]
    noise = Spread(math.fsum(one.squares for one in samples), sum(one.number - 1 for one in samples))

    def rank(name: str) -> tuple[int, float, str]:
        found = summaries[name]
        return -min(found.number, repeats), math.inf if found.sample is None else found.sample.mean, name

    def is_candidate(name: str) -> bool:
        return summaries[name].sample is not None and summaries[name].is_feasible and not summaries[name].active

    whole = [name for name, one in configurations.items() if len(one.runs) >= repeats and is_candidate(name)]
    leader = summaries[min(whole, key=rank)].sample if whole else None
    missing: dict[str, int] = {}
    for name, found in summaries.items():
        more = repeats - len(configurations[name].runs)
        out = leader is not None and found.sample is not None and cannot_win(found.sample, leader, noise)
        if more > 0 and not found.is_given_up and not out:
            missing[name] = more
    under_way = frozenset(name for name, found in summaries.items() if found.active)
    over = whole or [name for name in configurations if name not in missing and is_candidate(name)]
    return Standing(
        configurations[min(over, key=rank)] if over else None,
        {name: missing[name] for name in sorted(missing, key=lambda name: (missing[name], name))},
        under_way,
        sum(missing.values()),
    )


def next_runs(
    runs: RepeatedRuns, standing: Standing, repeats: int, budget: int | None
) -> tuple[tuple[TrialAssignment, ...], float]:
    """Return the further runs to start before new configurations, and the number of those that may start.

    One run of each open configuration at a time, so that the race can end it; all at once when no new configuration
    fits into the budget. Runs that are left over in the end repeat the best configuration.
    """
    left = math.inf if budget is None else budget - runs.total
    room = (left - standing.reserved) // repeats if left < math.inf else math.inf
    if room >= 1:
        ready = [name for name in standing.open if name not in standing.under_way]
        return tuple(run for name in ready for run in runs.configurations[name].next_runs(1)), room
    if standing.open or standing.under_way:
        rounds = [list(runs.configurations[name].next_runs(count)) for name, count in standing.open.items()]
        longest = max(map(len, rounds), default=0)
        return tuple(found[i] for i in range(longest) for found in rounds if i < len(found)), 0.0
    if standing.best is not None and left > 0:
        return tuple(standing.best.next_runs(int(left))), 0.0
    return (), math.inf


def history(runs: RepeatedRuns, standing: Standing) -> tuple[Trial, ...]:
    """Return a trial of each configuration as algorithms see it: pending until it is over, then with its mean."""
    return tuple(
        one.trial(
            _pending(one.summary().status)
            if name in standing.open or name in standing.under_way
            else one.summary().status
        )
        for name, one in runs.configurations.items()
    )


def _pending(status: TrialStatus) -> TrialStatus:
    kept = tuple(found for found in status.conditions if found.type == "Created")
    started = status.start_time
    conditions = kept if started is None else set_condition(kept, "Running", "TrialRunning", "Trial runs", started)
    return TrialStatus(start_time=started, conditions=conditions)


def default_of(runs: RepeatedRuns, standing: Standing) -> Trial | None:
    """Return the trial of the defaults with its mean; None until it is over."""
    for name, one in runs.configurations.items():
        if one.assignment.labels.get(CHOSEN_BY_LABEL) == BY_DEFAULT:
            goes_on = name in standing.open or name in standing.under_way
            return None if goes_on else one.trial(one.summary().status)
    return None
