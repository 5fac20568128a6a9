"""What an algorithm would have done."""

from __future__ import annotations

from suggestion_services.early_stopping import CurvePoint, replay
from suggestion_services.early_stopping.replay import Recording
from tests.support.stopping_algorithms import an_algorithm


def recorded(name: str, *costs: float, start: int = 0, succeeded: bool = True) -> Recording:
    """Return a trial that reports every ten microseconds."""
    points = [(start + 10 * i, CurvePoint(i, cost)) for i, cost in enumerate(costs, 1)]
    return Recording(name, points, succeeded=succeeded, by_number=True)


def test_only_what_was_known_then_counts() -> None:
    early = recorded("early", 0.9, 0.8, 0.7)
    late = recorded("late", 0.1, 0.1, start=25)

    assert replay(an_algorithm("asha"), [early, late]) == []


def test_a_trial_is_stopped_when_another_ones_reading_decides() -> None:
    early = recorded("early", 0.9, 0.8, 0.7)
    late = recorded("late", 0.1, 0.1, start=15)

    (found,) = replay(an_algorithm("asha"), [early, late])

    assert (found.verdict.trial_name, found.time_micros, found.readings) == ("early", 25, 2)


def test_what_comes_after_the_stop_counts_no_more() -> None:
    """The other one would be judged by 0.05, which came only after the stop."""
    turned = recorded("turned", 0.9, 0.8, 0.01, 0.01, 0.01)
    steady = recorded("steady", 0.5, 0.5, 0.5, 0.5, start=1)

    assert [one.verdict.trial_name for one in replay(an_algorithm("asha"), [turned, steady])] == ["turned"]


def test_a_trial_counts_as_succeeded_from_its_last_reading_on() -> None:
    done = [recorded(f"t{i}", 0.1, 0.1) for i in range(3)]
    failed = [recorded(f"t{i}", 0.1, 0.1, succeeded=False) for i in range(3)]
    bad = recorded("bad", *[0.9] * 5, start=5)

    found = replay(an_algorithm("medianstop", start_step=1), [*done, bad])

    assert [(one.verdict.trial_name, one.time_micros) for one in found] == [("bad", 20)]
    assert replay(an_algorithm("medianstop", start_step=1), [*failed, bad]) == []


def test_a_long_experiment_is_judged_at_so_many_moments_only() -> None:
    long = [recorded(f"t{i}", *[i + 1.0] * 4000, start=i) for i in range(3)]

    found = replay(an_algorithm("asha"), long)

    assert [one.verdict.trial_name for one in found] == ["t1", "t2"]
    assert all(one.readings < 10 for one in found)
