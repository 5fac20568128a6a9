"""Findings about configurations that were run several times, computed from their trials.

Their runs are the trials of an experiment that confirms another one, those of a search that repeats its trials, or
those of any search that had a configuration more than once.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final, TypeAlias

from msgspec import Struct, convert, structs

from katib.engine.controllers.kinds import TRIAL, key_of
from katib.engine.runtime.objects import Key, ObjectStore
from katib.errors import NotFoundError
from katib.model.features.repeats.runs import RepeatedRuns, mean_observation, sample_of
from katib.model.metrics import is_usable
from katib.model.names import CONFIRMED_ANNOTATION, CONFIRMS_LABEL, EXPERIMENT_LABEL, GENERATION_LABEL
from katib.model.trials import ACTIVE, cost, is_feasible, metric_text
from katib.model.types import Experiment, ObjectiveSpec, OptimalTrial, Trial, TrialState
from katib.model.wording import counted, number_text
from katib.service.tuning.certainty import MeanEstimate, estimates
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import INTERVAL_LEVEL, Confirmation, ConfirmedConfiguration
from katib.service.tuning.states import completed_count, is_completed, state_of

CLEAR: Final = 0.9
"""Probability from which one configuration is called better than another."""

_DIGITS = 4
_FEWEST_RUNS: Final = 2
"""Runs of a configuration from which its mean tells more than a single value."""

_SHOWN: Final = 5
"""Configurations of a search that repeats its trials."""

_MOST_COMPARED: Final = 1_000
_RARE = 0.005
_EXACT: Final = 1e-12
"""Differences of equal trials, in shares of the largest mean, that are rounding errors."""

_UNTOLD: Final[Mapping[str, None]] = {"probability": None, "behind": None}


Point: TypeAlias = frozenset[tuple[str, str]]
"""A configuration: each parameter with its text."""


def point_of(parameters: Mapping[str, str]) -> Point:
    return frozenset(parameters.items())


class SearchedTrial(Struct, frozen=True):
    """A trial of the search whose configuration is run again."""

    trial: str
    value: float
    parameters: Mapping[str, str]


class ConfirmedTrials(Struct, frozen=True):
    """The content of the annotation: the trials, the best first, and the uid of their experiment."""

    uid: str
    trials: tuple[SearchedTrial, ...]

    @classmethod
    def of(cls, experiment: Experiment) -> ConfirmedTrials:
        """Return those of an experiment that confirms another one."""
        return convert(
            json.loads(experiment.metadata.annotations.get(CONFIRMED_ANNOTATION, '{"uid":"","trials":[]}')), cls
        )


def trials_of(store: ObjectStore, key: Key) -> Iterator[Trial]:
    for page in store.pages(TRIAL, key.namespace, labels={EXPERIMENT_LABEL: key.name}):
        yield from map(Trial.read, page.items)


def cost_of(objective: ObjectiveSpec, trial: Trial) -> float | None:
    """Return the value of a successful trial, negated if maximized; the first of several; None if it has none."""
    term = objective.terms[0]
    text = metric_text(objective, trial.status.observation, term.name)
    usable = state_of(trial) == TrialState.SUCCEEDED and text is not None and is_usable(text)
    return cost(term, float(text)) if usable and text is not None else None


def confirmation_by(store: ObjectStore, confirming: Experiment) -> Confirmation:
    """Return the findings so far of an experiment that confirms another one."""
    return found_by(confirming, trials_of(store, key_of(confirming)))


def confirmed_optimum(store: ObjectStore, confirming: Experiment) -> OptimalTrial | None:
    """Return the configuration of the best mean with the means of its runs; None if it is unknown.

    It has the name of its trial in the search, or of one of its runs if that was deleted.
    """
    searched, objective = ConfirmedTrials.of(confirming).trials, confirming.spec.objective or ObjectiveSpec()
    runs: dict[Point, list[Trial]] = {point_of(one.parameters): [] for one in searched}
    for trial in trials_of(store, key_of(confirming)):
        if cost_of(objective, trial) is not None and (point := point_of(assignments_of(trial))) in runs:
            runs[point].append(trial)
    measured = {point: found for point, found in runs.items() if found}
    is_comparable = len(measured) == len(runs) or is_completed(confirming)
    if not is_comparable or max(map(len, measured.values()), default=0) < _FEWEST_RUNS:
        return None
    best = min(measured, key=lambda point: fmean(cost_of(objective, trial) or 0.0 for trial in measured[point]))
    name = next(one.trial for one in searched if point_of(one.parameters) == best)
    try:
        store.get(TRIAL, Key(confirming.namespace, name))
    except NotFoundError:
        name = measured[best][0].name
    return OptimalTrial(
        best_trial_name=name,
        parameter_assignments=measured[best][0].spec.parameter_assignments,
        observation=mean_observation([trial.status.observation for trial in measured[best]]),
    )


def repeated_by(store: ObjectStore, experiment: Experiment) -> Confirmation | None:
    """Return the findings about the best configurations of a search that repeats its trials; None without a best one.

    Those with the best means among the most runs are shown. The best one is that of the experiment's status.
    """
    objective, runs = experiment.spec.objective or ObjectiveSpec(), RepeatedRuns()
    for trial in trials_of(store, key_of(experiment)):
        runs.add(trial)
    best = experiment.status.current_optimal_trial.best_trial_name
    first = runs.configurations.get(best)
    if first is None or (leader := first.summary().sample) is None:
        return None
    ranked = sorted(
        (-found.number, found.sample.mean, one.name)
        for one in runs.configurations.values()
        if (found := one.summary()).sample is not None
        and found.number
        and found.is_feasible
        and found.sample.mean >= leader.mean
        and one is not first
    )
    shown = sorted(ranked[: _SHOWN - 1], key=lambda found: found[1])
    chosen = [first, *(runs.configurations[name] for _, _, name in shown)]
    costs = [[run.cost for run in one.counted() if run.cost is not None] for one in chosen]
    rows = []
    for one, mean, own_costs in zip(chosen, estimates(costs), costs, strict=True):
        own = next((run.cost for name, run in one.runs.items() if name == one.name), None)
        values = tuple(cost(objective, value) for value in own_costs)
        row = ConfirmedConfiguration(
            one.name,
            {given.name: given.value for given in one.assignment.parameter_assignments},
            cost(objective, own) if own is not None else values[0],
            values=values,
            lost=tuple(name for name, run in one.runs.items() if run.cost is None and run.state not in ACTIVE),
        )
        rows.append(structs.replace(row, **_signed(mean, maximized=cost(objective, 1.0) < 0)))
    answer = _of_search(experiment, rows, confirmed_by=experiment.name, best=best)
    return structs.replace(answer, verdict=_verdict(answer), notes=tuple(_notes(answer, ())))


def equal_trials_of(store: ObjectStore, experiment: Experiment) -> Confirmation | None:
    """Return what trials with equal parameters tell of the best one; None without an answer; see `told_by_equal`.

    Of more trials than a page can wait for there is none.
    """
    if experiment.status.trials > _MOST_COMPARED:
        return None
    return told_by_equal(experiment, trials_of(store, key_of(experiment)))


def told_by_equal(experiment: Experiment, trials: Iterable[Trial]) -> Confirmation | None:
    """Return what trials with equal parameters tell of the best ones; None if their values do not differ.

    The configurations are that of the best trial and others with low means, which count less with few runs; the most
    probable best one is the first. `optimism` compares the best value with the further runs of its configuration.
    Trials that continue others are left out, since their parameters are not all that they depend on.
    """
    objective, leader = experiment.spec.objective or ObjectiveSpec(), experiment.status.current_optimal_trial
    groups: dict[Point, dict[str, float]] = defaultdict(dict)
    for trial in trials:
        own = cost_of(objective, trial)
        if (
            own is not None
            and is_feasible(objective, trial.status.observation)
            and GENERATION_LABEL not in trial.metadata.labels
        ):
            groups[point_of(assignments_of(trial))][trial.name] = own
    samples = {point: sample_of(list(runs.values())) for point, runs in groups.items()}
    squares = math.fsum(one.squares for one in samples.values())
    degrees = sum(one.number - 1 for one in samples.values())
    first = next((point for point, runs in groups.items() if leader.best_trial_name in runs), None)
    noise = math.sqrt(squares / degrees) if degrees else 0.0
    if objective.has_several or first is None or noise <= _EXACT * max(abs(one.mean) for one in samples.values()):
        return None
    order = sorted(samples, key=lambda point: samples[point].mean + noise / math.sqrt(samples[point].number))
    chosen = [first, *(point for point in order if point != first)][:_SHOWN]
    rows = []
    for point, mean in zip(chosen, estimates([list(groups[point].values()) for point in chosen]), strict=True):
        runs = groups[point]
        name = leader.best_trial_name if point == first else min(runs, key=runs.__getitem__)
        values = tuple(cost(objective, one) for one in runs.values())
        row = ConfirmedConfiguration(name, dict(sorted(point)), cost(objective, runs[name]), values=values)
        rows.append(structs.replace(row, **{**_signed(mean, maximized=cost(objective, 1.0) < 0), "behind": None}))
    rows.sort(key=lambda row: -(row.probability or 0.0))
    further = [own for name, own in groups[first].items() if name != leader.best_trial_name]
    optimism = fmean(further) - groups[first][leader.best_trial_name] if further else None
    verdict = f"Trials with equal parameters differ by about {text_of(noise)} in {objective.terms[0].name}."
    found = _of_search(experiment, rows, confirmed_by="", best=rows[0].trial)
    answer = structs.replace(found, optimism=optimism, verdict=verdict)
    notes = _likely(answer, leader.best_trial_name, ended=is_completed(experiment))
    return structs.replace(answer, notes=tuple(notes))


def _of_search(
    experiment: Experiment, rows: Sequence[ConfirmedConfiguration], *, confirmed_by: str, best: str
) -> Confirmation:
    """Return the findings about the trials of a search itself, without words."""
    objective = experiment.spec.objective or ObjectiveSpec()
    count = sum(len(row.values) + len(row.lost) for row in rows)
    return Confirmation(
        experiment=experiment.name,
        confirmed_by=confirmed_by,
        state=state_of(experiment),
        metric=objective.terms[0].name,
        direction=objective.type,
        runs=count,
        budget=count,
        configurations=tuple(rows),
        best=best,
        optimism=None,
        verdict="",
    )


def _likely(found: Confirmation, leader: str, *, ended: bool) -> Iterator[str]:
    """Yield how sure it is that a search's best trial is the best, from trials with equal parameters."""
    first, lead = found.configurations[0], next(row for row in found.configurations if row.trial == leader)
    if found.optimism is None:
        yield f"The parameters of {leader} ran once."
    elif lead.mean is not None:
        mean = f"{text_of(lead.mean)} ({INTERVAL_LEVEL:.0%} interval {interval_text(lead)})"
        yield f"The {len(lead.values)} trials with the parameters of {leader} have a mean of {mean}."
    probability = share_text(lead.probability or 0.0)
    if first is lead:
        yield f"They are the best with probability {probability}."
    elif first.mean is not None:
        mean = f"a mean of {text_of(first.mean)} in {counted(len(first.values), 'trial')}"
        better = f"with probability {share_text(first.probability or 0.0)}"
        yield f"They are the best with probability {probability}; those of {first.trial}, {mean}, {better}."
    if ended and (first.probability or 0.0) < CLEAR:
        yield f"`katib confirm {found.experiment}` runs the best ones again."


def found_by(confirming: Experiment, trials: Iterable[Trial]) -> Confirmation:
    """Return the findings of an experiment that confirms another one, from its trials."""
    objective = confirming.spec.objective or ObjectiveSpec()
    term, searched = objective.terms[0], ConfirmedTrials.of(confirming).trials
    costs, lost = _costs(objective, trials)
    points = [point_of(one.parameters) for one in searched]
    measured = [point for point in points if point in costs]
    found = estimates([costs[point] for point in measured]) if measured else []
    means = dict(zip(measured, found, strict=True))
    is_comparable = len(measured) == len(points) or is_completed(confirming)
    order = sorted(range(len(points)), key=lambda i: means[points[i]].mean if points[i] in means else math.inf)
    rows = []
    for one, point in ((searched[i], points[i]) for i in order):
        row = ConfirmedConfiguration(one.trial, one.parameters, one.value, lost=tuple(lost[point]))
        if point in means:
            values = tuple(cost(term, value) for value in costs[point])
            fields = _signed(means[point], maximized=cost(term, 1.0) < 0)
            row = structs.replace(row, values=values, **(fields if is_comparable else {**fields, **_UNTOLD}))
        rows.append(row)
    first = means.get(points[0]) if points else None
    answer = Confirmation(
        experiment=confirming.metadata.labels.get(CONFIRMS_LABEL, ""),
        confirmed_by=confirming.name,
        state=state_of(confirming),
        metric=term.name,
        direction=term.type,
        runs=completed_count(confirming),
        budget=confirming.spec.max_trial_count or 0,
        configurations=tuple(rows),
        best=rows[0].trial if rows and rows[0].probability is not None else "",
        optimism=None if first is None else first.mean - cost(term, searched[0].value),
        verdict="",
    )
    several = [f"Of several objectives, {term.name} decides."] if objective.has_several else []
    notes = (*_notes(answer, searched), *several)
    return structs.replace(answer, verdict=_verdict(answer), notes=notes)


def _costs(
    objective: ObjectiveSpec, trials: Iterable[Trial]
) -> tuple[Mapping[Point, list[float]], Mapping[Point, list[str]]]:
    """Return the costs of each configuration, and the names of its runs that ended without a value."""
    costs: dict[Point, list[float]] = defaultdict(list)
    lost: dict[Point, list[str]] = defaultdict(list)
    for trial in trials:
        point, value = point_of(assignments_of(trial)), cost_of(objective, trial)
        if value is not None:
            costs[point].append(value)
        elif is_completed(trial):
            lost[point].append(trial.name)
    return costs, lost


def _signed(mean: MeanEstimate, *, maximized: bool) -> dict[str, float | None]:
    """Return an estimate as the fields of a configuration."""
    low, high = (mean.low, mean.high) if not maximized else (_negated(mean.high), _negated(mean.low))
    value = -mean.mean if maximized else mean.mean
    return {"mean": value, "low": low, "high": high, "probability": mean.probability, "behind": mean.behind}


def _negated(value: float | None) -> float | None:
    return None if value is None else -value


# --- sentences --------------------------------------------------------------------------------------------------------


def text_of(value: float) -> str:
    return number_text(value, _DIGITS)


def share_text(share: float) -> str:
    """Return a probability in percent; one that is neither 0 nor 1 does not look so."""
    if 0 < share < _RARE or 1 - _RARE < share < 1:
        return "below 1%" if share < _RARE else "over 99%"
    return f"{share:.0%}"


def interval_text(row: ConfirmedConfiguration) -> str:
    """Return the interval of a mean, such as `0.29 to 0.33`; empty if it is unknown."""
    return "" if row.low is None or row.high is None else f"{text_of(row.low)} to {text_of(row.high)}"


def _verdict(found: Confirmation) -> str:
    count, runs = len(found.configurations), counted(found.budget, "run")
    some = f"{found.runs} of {runs}" if 0 < found.runs < found.budget else runs
    of = f"{'' if count == 1 else f'{count} '}best configuration{'s' * (count != 1)} of {found.experiment}"
    first = found.configurations[0] if count else None
    if not found.runs:
        return f"None of {some} of the {of} has ended."
    if first is None or first.mean is None:
        return f"In {some} of the {of}, none has a value."
    mean = f"{found.metric}={text_of(first.mean)}"
    if first.probability is None:
        unsure = "one run of each cannot tell how sure that is"
        if any(row.mean is None for row in found.configurations):
            unsure = "others have no value yet"
        return f"In {some} of the {of}, {first.trial} has the best mean, {mean}; {unsure}."
    mean = f"{mean} ({INTERVAL_LEVEL:.0%} interval {interval_text(first)})"
    if count == 1:
        return f"In {some} of the {of}, the mean of {first.trial} is {mean}."
    best = f"is the best with probability {share_text(first.probability)}"
    return f"In {some} of the {of}, {first.trial} has the best mean, {mean}, and {best}."


def _notes(found: Confirmation, searched: Sequence[SearchedTrial]) -> Iterator[str]:
    measured = [row for row in found.configurations if row.mean is not None]
    close = [row.trial for row in measured[1:] if row.behind is not None and row.behind < CLEAR]
    if close:
        yield f"{measured[0].trial} cannot be told from {_listed(close)}; more runs may decide."
    if found.optimism is not None:
        value, trial = text_of(searched[0].value), searched[0].trial
        mean = next(text_of(row.mean) for row in measured if row.trial == trial and row.mean is not None)
        how = f"{text_of(found.optimism)} too good" if found.optimism > 0 else "not too good"
        yield f"The best value of the search, {value} of {trial}, was {how}: the mean of its further runs is {mean}."
    repeated = [row for row in measured if len(row.values) > 1]
    if repeated and all(len(set(row.values)) == 1 for row in repeated):
        yield "All runs of a configuration have the same value: the program has no noise, or does not use KATIB_SEED."
    for row in found.configurations:
        if row.lost:
            yield f"{counted(len(row.lost), 'run')} of {row.trial} ended without a value: {_listed(row.lost)}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
