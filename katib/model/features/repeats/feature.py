"""The feature of repeats: the mean of several runs is the value of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from katib.errors import FieldError, invalid
from katib.model.checkpoints import checkpoint_directory
from katib.model.features.feature import Annotation, Feature, Means, Option, Part, Progress, Tally
from katib.model.types import Experiment, Trial
from katib.model.wording import path_to, shown

if TYPE_CHECKING:
    from katib.model.features.repeats.runs import RepeatedRuns

MOST_REPEATS: Final = 200


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 1


REPEATS: Final = Annotation("katib.kubeflow.org/repeats", _count)
"""On an Experiment and its trials: number of runs of each configuration."""


def configuration_count(experiment: Experiment) -> int | None:
    """Return the least number of configurations that use up the budget, which algorithms know; None without a limit."""
    runs, repeats = experiment.spec.max_trial_count, REPEATS.read(experiment.metadata.annotations)
    return runs if runs is None or repeats <= 1 else max(runs // repeats, 1)


def are_repeated(annotations: Mapping[str, str]) -> bool:
    """Return whether the configurations of an experiment, or that of a trial, are run several times."""
    return REPEATS.read(annotations) > 1


_PATH: Final = path_to("metadata.annotations", REPEATS.name)


class Repeats(Feature):
    """Repeated runs of each configuration."""

    name = "repeats"
    annotations = (REPEATS,)
    options = (Option("--repeats", REPEATS.name, "N", "Value of a configuration: the mean of up to N trials."),)

    @override
    def errors(self, annotations: Mapping[str, str], /) -> Sequence[FieldError]:
        text = annotations.get(REPEATS.name, "1")
        if 1 <= (REPEATS.decode(text) if text.isascii() and text.isdigit() else 0) <= MOST_REPEATS:
            return ()
        cause, remedy = f"{shown(text)} is not a number of runs", f"use a whole number from 1 to {MOST_REPEATS}"
        return (FieldError(_PATH, cause, remedy, "repeats-count"),)

    @override
    def changes(self, stored: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
        before, after = REPEATS.read(stored), REPEATS.read(wanted)
        if REPEATS.name in wanted and before != after:
            cause = f"the experiment of this name has {before}, which cannot change"
            raise invalid(_PATH, cause, "undo that, or use another name", "repeats-changed")
        return {}

    @override
    def misfits(self, experiment: Experiment, /) -> Iterator[FieldError]:
        spec, repeats = experiment.spec, REPEATS.read(experiment.metadata.annotations)
        if repeats <= 1:
            return
        if spec.objective is not None and spec.objective.has_several:
            cause, remedy = "several objectives have no single mean to compare", "name one objective"
            yield FieldError(_PATH, cause, f"{remedy}, or remove it", "repeats-objectives")
        if spec.trial_template is None:
            cause, remedy = "callers evaluate its trials", "repeat a trial in your program and tell the mean"
            yield FieldError(_PATH, cause, remedy, "repeats-callers")
        if spec.nas_config is not None or checkpoint_directory(spec.algorithm):
            cause = "its trials continue from each other, so that values alone do not make them"
            yield FieldError(_PATH, cause, "choose another algorithm", "repeats-algorithm")
        if spec.max_trial_count is not None and spec.max_trial_count < repeats:
            cause = f"{repeats} runs of a configuration are more than the {spec.max_trial_count} of maxTrialCount"
            yield FieldError(_PATH, cause, "raise maxTrialCount, which counts runs", "repeats-budget")

    @override
    def trial_annotations(self, experiment: Experiment, _run_spec: Mapping[str, Any] | None, /) -> dict[str, str]:
        repeats = REPEATS.read(experiment.metadata.annotations)
        return REPEATS.write(repeats) if repeats > 1 else {}

    @override
    def counts(self, trial: Trial, /) -> bool:
        return REPEATS.name in trial.metadata.annotations

    @override
    def tally(self) -> RepeatedRuns:
        from katib.model.features.repeats.runs import RepeatedRuns

        return RepeatedRuns()

    @override
    def part(self, experiment: Experiment, tally: Tally | None, progress: Progress, /) -> Part | None:
        repeats, budget = REPEATS.read(experiment.metadata.annotations), experiment.spec.max_trial_count
        if repeats <= 1:
            return None
        from katib.model.features.repeats.runs import RepeatedRuns, default_of, next_runs, standing_of

        runs = tally if isinstance(tally, RepeatedRuns) else RepeatedRuns()
        standing = standing_of(runs.configurations, repeats)
        again, room = next_runs(runs, standing, repeats, budget)
        best = None if standing.best is None else standing.best.trial(standing.best.summary().status)
        return Part(self, again=again, new_room=room, means=Means(best, default_of(runs, standing)))

    @override
    def history(self, experiment: Experiment, tally: Tally | None, /) -> tuple[Trial, ...] | None:
        repeats = REPEATS.read(experiment.metadata.annotations)
        if repeats <= 1:
            return None
        from katib.model.features.repeats.runs import RepeatedRuns, history, standing_of

        runs = tally if isinstance(tally, RepeatedRuns) else RepeatedRuns()
        return history(runs, standing_of(runs.configurations, repeats))
