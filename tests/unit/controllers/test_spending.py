"""What trials have used, and what a budget still allows."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from katib.api.budgets import Budget
from katib.api.names import HOLDS_ANNOTATION
from katib.api.types import Trial
from katib.controllers.spending import Spending, Uses
from tests.support.planning import NOW, holding, trial

GPUS = "gpu=2, trial=1"


def ran(name: str, start: float, end: float | None, holds: str = GPUS) -> Trial:
    """Return a trial that ran between these hours from NOW on, or still runs."""
    made = trial(name, "Running" if end is None else "Succeeded")
    times = {
        "start_time": NOW + timedelta(hours=start),
        "completion_time": None if end is None else NOW + timedelta(hours=end),
    }
    metadata = structs.replace(made.metadata, annotations={HOLDS_ANNOTATION: holds})
    return structs.replace(made, metadata=metadata, status=structs.replace(made.status, **times))


def uses_of(*trials: Trial) -> Uses:
    spending = Spending()
    for made in trials:
        spending.add(made)
    found = spending.uses()
    assert found is not None
    return found


def test_trials_side_by_side_share_the_hours_and_add_up_in_everything_else() -> None:
    uses = uses_of(ran("a", 0, 2), ran("b", 1, 3), ran("c", 5, 6), ran("d", 5.5, None), ran("e", 5.75, None))
    budget = Budget({"hours": 1, "gpu": 1, "trial": 1, "$": 1}, {"gpu": 3.0, "cpu": 9.0})
    now = NOW + timedelta(hours=7)

    assert uses.used(budget, "hours", now) == pytest.approx(3 + 2)
    assert uses.used(budget, "trial", now) == pytest.approx(2 + 2 + 1 + 1.5 + 1.25)
    assert uses.used(budget, "gpu", now) == pytest.approx(2 * 7.75)
    assert uses.used(budget, "$", now) == pytest.approx(3 * 2 * 7.75)


def test_trials_that_wait_or_say_nothing_of_what_they_have_use_nothing() -> None:
    spending = Spending()
    spending.add(trial("a", "Running"))
    assert spending.uses() is None

    waiting = ran("b", 0, None)
    spending.add(structs.replace(waiting, status=structs.replace(waiting.status, conditions=())))
    uses = spending.uses()
    assert uses is not None
    assert uses.used(Budget({"hours": 1}), "hours", NOW + timedelta(hours=9)) == 0


def waits(name: str, start: float, since: float) -> Trial:
    """Return a trial that ran between these hours and waits now; it never ran where they are one."""
    made = ran(name, start, None)
    held_up = structs.replace(holding("Running", status="False"), last_transition_time=NOW + timedelta(hours=since))
    return structs.replace(made, status=structs.replace(made.status, conditions=(held_up,)))


def test_what_a_trial_used_before_it_was_preempted_counts_and_what_it_still_needs_is_set_aside() -> None:
    spending, budget = Spending(), Budget({"trial": 6, "gpu": 12})
    for made in (ran("a", 0, 2), waits("b", 0, 1), waits("c", 0, 0)):
        spending.add(made)
    waiting = spending.uses()
    now = NOW + timedelta(hours=4)

    assert waiting is not None
    assert [waiting.used(budget, unit, now) for unit in ("hours", "trial", "gpu")] == pytest.approx([2, 3, 6])
    assert waiting.median_seconds == 2 * 3600
    assert waiting.room(budget, now) == 0  # three hours are left, of which b needs one and c two
    assert waiting.room(Budget({"trial": 8}), now) == 1
    spending.remove("b")
    spending.add(ran("b", 3, None))  # it goes on after three hours
    going_on = spending.uses()
    assert going_on is not None
    assert going_on.used(budget, "gpu", now) == pytest.approx(6)


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
    uses = uses_of(
        ran("a", 0, 1), ran("b", 1, 2), ran("c", 2, None, "gpu=1, trial=1"), ran("d", 0, 1, "trial=0, gpu=0")
    )
    uses = replace(uses, usual={"gpu": 2.0, "trial": 1.0})
    now = NOW + timedelta(hours=3)

    budget = Budget(limits, {"trial": 1.0})

    assert uses.room(budget, now) == room
    assert uses.seconds_left(budget, now) == pytest.approx(3600 * hours_left)
    assert not uses.is_spent(budget, now)
    assert uses.is_spent(budget, now + timedelta(hours=hours_left))


def test_as_long_as_no_trial_has_ended_any_may_start() -> None:
    assert uses_of(ran("a", 0, None)).room(Budget({"hours": 1}), NOW) == math.inf
    assert uses_of(ran("a", 0, 1)).seconds_left(Budget({"hours": 9}), NOW) == math.inf


stretches = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40), st.integers(0, 9), st.booleans()), max_size=40)


@settings(max_examples=150, deadline=None)
@given(changes=stretches)
def test_it_equals_what_adding_up_all_trials_gives(changes: list[tuple[int, int, int, bool]]) -> None:
    """Also when trials go away, change, or change back."""
    spending, budget, known = Spending(), Budget({}), dict[str, Trial]()
    for number, start, length, deleted in changes:
        name = f"t{number}"
        spending.remove(name)
        known.pop(name, None)
        if not deleted:
            known[name] = ran(name, start, start + length if length else None)
            spending.add(known[name])
        if uses := spending.uses():
            fresh = uses_of(*known.values()) if known else None
            now = NOW + timedelta(hours=60)
            for unit in ("hours", "gpu"):
                wanted = 0.0 if fresh is None else fresh.used(budget, unit, now)
                assert uses.used(budget, unit, now) == pytest.approx(wanted, abs=1e-6)
            covered = {hour for made in known.values() for hour in hours_of(made)}
            assert uses.used(budget, "hours", now) == pytest.approx(len(covered), abs=1e-6)


def hours_of(made: Trial) -> range:
    start, end = made.status.start_time, made.status.completion_time or NOW + timedelta(hours=60)
    assert start is not None
    return range(round((start - NOW).total_seconds() / 3600), round((end - NOW).total_seconds() / 3600))
