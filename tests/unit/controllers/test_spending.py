"""What trials have used, and what a budget still allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from katib.model.features.budgets.amounts import Budget
from katib.model.features.budgets.annotations import HOLDS
from katib.model.features.budgets.spending import Spending, Uses
from katib.model.features.feature import Progress
from katib.model.types import Trial
from tests.support.planning import NOW, holding, trial

GPUS = "gpu=2, trial=1"


def ran(name: str, start: float, end: float | None, holds: str = GPUS) -> Trial:
    """Return a trial that ran between these hours from NOW on, or still runs."""
    made = trial(name, "Running" if end is None else "Succeeded")
    times = {
        "start_time": NOW + timedelta(hours=start),
        "completion_time": None if end is None else NOW + timedelta(hours=end),
        "run_seconds": None if end is None else 3600.0 * (end - start),
    }
    metadata = structs.replace(made.metadata, annotations={HOLDS.name: holds})
    return structs.replace(made, metadata=metadata, status=structs.replace(made.status, **times))


def measured(hours: float, run_hours: float = 0.0) -> Progress:
    """Return what is measured so long after NOW, when trials ran without a break since they started."""

    def seconds_of(made: Trial) -> float:
        assert made.status.start_time is not None
        return (NOW + timedelta(hours=hours) - made.status.start_time).total_seconds()

    return Progress(3600 * run_hours, seconds_of)


def uses_of(*trials: Trial, at: Progress | None = None, removed: Mapping[str, float] | None = None) -> Uses:
    spending = Spending()
    for made in trials:
        spending.add(made)
    found = spending.uses(at or measured(0), removed or {})
    assert found is not None
    return found


def test_the_hours_are_those_that_were_measured_and_everything_else_adds_up() -> None:
    uses = uses_of(ran("a", 0, 2), ran("b", 1, 3), ran("d", 5.5, None), ran("e", 5.75, None), at=measured(7, 5))
    budget = Budget({"hours": 1, "gpu": 1, "trial": 1, "$": 1}, {"gpu": 3.0, "cpu": 9.0})

    assert uses.used(budget, "hours") == pytest.approx(5)
    assert uses.used(budget, "trial") == pytest.approx(2 + 2 + 1.5 + 1.25)
    assert uses.used(budget, "gpu") == pytest.approx(2 * 6.75)
    assert uses.used(budget, "$") == pytest.approx(3 * 2 * 6.75)


def test_trials_that_were_removed_to_run_again_stay_counted() -> None:
    removed, budget = {"trial": 3600.0, "gpu": 7200.0}, Budget({"trial": 9})
    alone = Spending().uses(measured(2), removed)

    assert alone is not None
    assert alone.used(budget, "trial") == 1
    assert uses_of(ran("a", 0, 2), at=measured(2), removed=removed).used(budget, "trial") == 3
    assert Spending().uses(measured(2), {}) is None


def test_trials_that_wait_or_say_nothing_of_what_they_have_use_nothing() -> None:
    spending = Spending()
    spending.add(trial("a", "Running"))
    assert spending.uses(Progress(0.0, lambda _: 0.0), {}) is None

    waiting = ran("b", 0, None)
    spending.add(structs.replace(waiting, status=structs.replace(waiting.status, conditions=())))
    uses = spending.uses(Progress(0.0, lambda _: 0.0), {})
    assert uses is not None
    assert uses.used(Budget({"trial": 1}), "trial") == 0


def waits(name: str, start: float, since: float) -> Trial:
    """Return a trial that ran between these hours and waits now; it never ran where they are one."""
    made = ran(name, start, None)
    held_up = structs.replace(holding("Running", status="False"), last_transition_time=NOW + timedelta(hours=since))
    return structs.replace(made, status=structs.replace(made.status, conditions=(held_up,)))


def test_what_a_trial_used_before_it_was_preempted_counts_and_what_it_still_needs_is_set_aside() -> None:
    spending, budget = Spending(), Budget({"trial": 6, "gpu": 12})
    for made in (ran("a", 0, 2), waits("b", 0, 1), waits("c", 0, 0)):
        spending.add(made)
    waiting = spending.uses(measured(4), {})

    assert waiting is not None
    assert [waiting.used(budget, unit) for unit in ("trial", "gpu")] == pytest.approx([3, 6])
    assert waiting.median_seconds == 2 * 3600
    assert waiting.room(budget) == 0  # three hours are left, of which b needs one and c two
    assert waiting.room(Budget({"trial": 8})) == 1
    spending.remove("b")
    spending.add(ran("b", 3, None))  # it continues after three hours
    going_on = spending.uses(measured(4), {})
    assert going_on is not None
    assert going_on.used(budget, "gpu") == pytest.approx(6)


@pytest.mark.parametrize(
    ("limits", "room", "hours_left"),
    [
        ({"hours": 4}, math.inf, 1.0),
        ({"hours": 3.5}, 0, 0.5),
        ({"trial": 6}, 3, 3.0),
        ({"gpu": 20}, 7, 15.0),
        ({"gpu": 20, "trial": 6.9}, 3, 3.9),
        ({"$": 4.2}, 1, 1.2),
    ],
)
def test_no_more_trials_start_than_can_end_by_the_median(
    limits: dict[str, float], room: float, hours_left: float
) -> None:
    def uses_at(hours: float) -> Uses:
        trials = ran("a", 0, 1), ran("b", 1, 2), ran("c", 2, None, "gpu=1, trial=1"), ran("d", 0, 1, "trial=0, gpu=0")
        return replace(uses_of(*trials, at=measured(hours, hours)), usual={"gpu": 2.0, "trial": 1.0})

    uses, budget = uses_at(3), Budget(limits, {"trial": 1.0})

    assert uses.room(budget) == room
    assert uses.seconds_left(budget) == pytest.approx(3600 * hours_left)
    assert not uses.is_spent(budget)
    assert uses_at(3 + hours_left).is_spent(budget)


@pytest.mark.parametrize("end", [None, 0.75], ids=["it runs", "the budget ended it"])
def test_as_long_as_no_trial_has_ended_one_starts_if_it_gets_half_as_long_as_the_longest_ran(end: float | None) -> None:
    """A trial that gets less than that is cut for sure, with nothing to compare."""
    made = ran("a", 0, end)
    if end is not None:
        cut = (holding("EarlyStopped", "TrialBudgetSpent"),)
        made = structs.replace(made, status=structs.replace(made.status, conditions=cut))
    uses = uses_of(made, at=measured(0.75, 0.75))

    assert uses.median_seconds is None
    assert uses.cut == ({} if end is None else {"a": 2700.0})
    assert [uses.room(Budget({"hours": limit})) for limit in (1, 1.2)] == [0, math.inf]
    assert uses_of(ran("a", 0, None)).room(Budget({"hours": 1})) == math.inf
    assert uses_of(ran("a", 0, 1)).seconds_left(Budget({"hours": 9})) == math.inf


stretches = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40), st.integers(0, 9), st.booleans()), max_size=40)


@settings(max_examples=150, deadline=None)
@given(changes=stretches)
def test_it_equals_what_adding_up_all_trials_gives(changes: list[tuple[int, int, int, bool]]) -> None:
    """Also when trials go away, change, or change back."""
    spending, budget, known, now = Spending(), Budget({}), dict[str, Trial](), measured(60)
    for number, start, length, deleted in changes:
        name = f"t{number}"
        spending.remove(name)
        known.pop(name, None)
        if not deleted:
            known[name] = ran(name, start, start + length if length else None)
            spending.add(known[name])
        if uses := spending.uses(now, {}):
            wanted = uses_of(*known.values(), at=now).used(budget, "gpu") if known else 0.0
            assert uses.used(budget, "gpu") == pytest.approx(wanted, abs=1e-6)
