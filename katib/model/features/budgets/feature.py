"""The feature of budgets: stops an experiment's trials at a limit, and starts none that could not finish."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from katib.errors import FieldError
from katib.model.features.budgets.annotations import CUT_REASON, HOLDS, HOURS, LIMITS, MONEY, PRICES, SPENT
from katib.model.features.feature import Feature, Option, Part, Progress, Tally
from katib.model.types import BudgetUsage, Experiment, Trial
from katib.model.wording import format_duration

if TYPE_CHECKING:
    from katib.model.features.budgets.spending import Spending, Uses

_STATUS_SECONDS = 60.0
"""Interval between writes of the used budget while nothing else changes."""


class Budgets(Feature):
    """Budgets of time, resources and money."""

    name = "budget"
    annotations = (LIMITS, PRICES)
    options = (
        Option("--budget", LIMITS.name, "AMOUNTS", "Stop at 8h, 20 gpu-hours or $50; several with commas."),
        Option("--price", PRICES.name, "gpu=2.50", "What an hour costs of gpu, cpu or trial.", repeatable=True),
    )
    reason = "ExperimentBudgetSpent"
    cut_reason = CUT_REASON
    cut_cause = "the budget of its experiment is spent"

    @override
    def errors(self, annotations: Mapping[str, str], /) -> Sequence[FieldError]:
        if LIMITS.name not in annotations:
            return ()
        from katib.model.features.budgets.amounts import read_budget

        return read_budget(LIMITS.read(annotations), PRICES.read(annotations))[1]

    @override
    def end(self, experiment: Experiment) -> str:
        return f"its budget of {LIMITS.read(experiment.metadata.annotations)} is spent"

    @override
    def larger_option(self, experiment: Experiment) -> str:
        from katib.model.features.budgets.amounts import doubled

        return f"--budget {shlex.quote(doubled(LIMITS.read(experiment.metadata.annotations)))}"

    @override
    def trial_annotations(self, experiment: Experiment, run_spec: Mapping[str, Any] | None, /) -> dict[str, str]:
        if LIMITS.name not in experiment.metadata.annotations:
            return {}
        from katib.model.features.budgets.amounts import holds_of

        return HOLDS.write(holds_of(run_spec))

    @override
    def without(self, annotations: Mapping[str, str], removed: Iterable[tuple[Trial, float]], /) -> dict[str, str]:
        spent = dict(SPENT.read(annotations))
        for trial, seconds in removed:
            for name, amount in HOLDS.read(trial.metadata.annotations).items():
                spent[name] = spent.get(name, 0.0) + amount * seconds
        return SPENT.write(spent) if spent else {}

    @override
    def counts(self, trial: Trial, /) -> bool:
        return HOLDS.name in trial.metadata.annotations

    @override
    def tally(self) -> Spending:
        from katib.model.features.budgets.spending import Spending

        return Spending()

    @override
    def part(self, experiment: Experiment, tally: Tally | None, progress: Progress, /) -> Part | None:
        if tally is None and SPENT.name not in experiment.metadata.annotations:
            return None
        from katib.model.features.budgets.spending import Spending

        spending = tally if isinstance(tally, Spending) else Spending()
        uses = spending.uses(progress, SPENT.read(experiment.metadata.annotations))
        return None if uses is None else self.limits(experiment, uses, keeps_checkpoints=progress.keeps_checkpoints)

    def limits(self, experiment: Experiment, uses: Uses, *, keeps_checkpoints: bool) -> Part:
        """Return the contribution to the plan of an experiment whose trials have this use."""
        from katib.model.features.budgets.amounts import read_budget

        annotations = experiment.metadata.annotations
        budget = read_budget(LIMITS.read(annotations), PRICES.read(annotations))[0]
        if budget is None:
            return Part(self, status={"budget_usage": ()})
        usage = tuple(
            BudgetUsage(unit=unit, used=f"{uses.used(budget, unit):.9g}", limit=f"{limit:.9g}")
            for unit, limit in budget.limits.items()
        )
        status, end = {"budget_usage": usage}, self.end(experiment)
        if uses.is_spent(budget):
            return Part(self, cuts=True, end=end, reopened=len(uses.cut), room=0.0, status=status)
        resumable = tuple(name for name, seconds in uses.cut.items() if keeps_checkpoints or not seconds)
        room, left = uses.room(budget), uses.seconds_left(budget)
        is_over = not resumable and room < 1
        return Part(
            self,
            end=f"{end}: what is left is less than a trial takes" if is_over else "",
            resumable=resumable,
            reopened=len(resumable),
            room=room,
            again_after_seconds=min(left, _STATUS_SECONDS) if math.isfinite(left) else None,
            status=status,
        )

    @override
    def words(self, experiment: Experiment, /) -> str:
        """Return the used amount of each limit: `45m of 8h, $1.20 of $50, 3.1 of 20 gpu-hours`."""
        return ", ".join(map(_words, experiment.status.budget_usage))


def _words(usage: BudgetUsage) -> str:
    used, limit = float(usage.used), float(usage.limit)

    if usage.unit == HOURS:
        return f"{format_duration(round(3600 * used))} of {format_duration(round(3600 * limit))}"
    if usage.unit == MONEY:
        return f"${used:.2f} of ${limit:.2f}"
    return f"{used:.3g} of {limit:.3g} {usage.unit}-hours"
