"""Early stopping algorithms over curves, without wire and log."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from katib.errors import InvalidError
from katib.model.trials import stopped_at
from suggestion_services.early_stopping import CostCurve, CurvePoint, replay
from suggestion_services.early_stopping.algorithm import StaticRule
from suggestion_services.early_stopping.hyperband import BracketScheme
from suggestion_services.early_stopping.replay import Recording
from suggestion_services.early_stopping.wilcoxon import p_value
from tests.support.golden import Golden
from tests.support.stopping_algorithms import NAMES, an_algorithm, names, running, stopped, succeeded

NAN = math.nan


def reason(name: str, *curves: CostCurve, maximize: bool = False, **settings: object) -> str:
    """Return why the only stopped trial is stopped."""
    (verdict,) = an_algorithm(name, maximize=maximize, **settings).judge(curves)
    assert stopped_at(verdict.reason) == str(verdict.resource)
    return verdict.reason


# --- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_nobody_is_stopped_without_curves_or_readings(name: str) -> None:
    assert names(an_algorithm(name)) == []
    assert names(an_algorithm(name), running("a"), running("b")) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_trial_that_has_ended_gets_no_verdict(name: str) -> None:
    good = [succeeded(f"good-{i}", *[0.1] * 20) for i in range(4)]

    assert names(an_algorithm(name), *good, succeeded("bad", *[9.0] * 15), stopped("worse", *[NAN] * 15)) == []


@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_the_largest_resource_is_above_the_smallest(name: str) -> None:
    with pytest.raises(InvalidError) as caught:
        an_algorithm(name, min_resource=9, max_resource=9)

    (error,) = caught.value.errors
    assert (error.path, error.origin) == ("spec.earlyStopping.algorithmSettings.max_resource", "setting-range")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "medianstop"])
def test_an_unknown_setting_is_refused_with_its_path(name: str) -> None:
    with pytest.raises(InvalidError) as caught:
        an_algorithm(name, colour="red")

    (error,) = caught.value.errors
    assert (error.path, error.origin) == ("spec.earlyStopping.algorithmSettings.colour", "setting-unknown")


# --- asha -------------------------------------------------------------------------------------------------------------


def test_asha_keeps_the_best_share_at_a_rung() -> None:
    curves = [running(f"t{i}", i / 10) for i in range(9)]

    assert names(an_algorithm("asha"), *curves) == ["t3", "t4", "t5", "t6", "t7", "t8"]
    assert names(an_algorithm("asha", reduction_factor=2), *curves) == ["t4", "t5", "t6", "t7", "t8"]


def test_asha_compares_only_those_that_have_come_as_far() -> None:
    alone = running("alone", 0.9, 0.8, 0.8)
    behind = [running(f"t{i}", 0.85) for i in range(2)]

    assert names(an_algorithm("asha"), alone, *behind) == []


def test_asha_looks_again_at_a_trial_that_was_among_the_first_at_its_rung() -> None:
    first = running("first", 0.9, 0.8)

    assert names(an_algorithm("asha"), first) == []
    assert names(an_algorithm("asha"), first, running("second", 0.5)) == ["first"]


def test_asha_lets_a_trial_go_on_that_has_passed_the_bar_meanwhile() -> None:
    slow = running("slow", 0.9, 0.4)

    assert names(an_algorithm("asha"), slow, running("quick", 0.5)) == []


def test_asha_counts_trials_that_have_ended_or_were_stopped() -> None:
    others = [succeeded("done", 0.1, 0.1), stopped("gone", 0.2), stopped("gone too", 0.95)]

    assert names(an_algorithm("asha"), running("new", 0.3), *others) == ["new"]


def test_asha_has_no_rung_before_the_first_nor_from_the_end_on() -> None:
    curves = [running("a", 0.9, 0.9), running("b", 0.1, 0.1)]

    assert names(an_algorithm("asha", min_resource=3), *curves) == []
    assert names(an_algorithm("asha", min_resource=1, grace=3), *curves) == []
    assert names(an_algorithm("asha", min_resource=1, grace=2), *curves) == ["a"]
    long = [running("a", 0.1, 0.9, 0.9), running("b", 0.2, 0.0, 0.0)]
    assert names(an_algorithm("asha"), *long) == ["a"]
    assert names(an_algorithm("asha", max_resource=3), *long) == []


def test_asha_ranks_a_trial_without_numbers_last() -> None:
    curves = [running("nan", NAN, NAN), running("number", 5.0)]

    assert names(an_algorithm("asha"), *curves) == ["nan"]
    assert names(an_algorithm("asha"), running("nan", NAN), running("nan too", NAN)) == []


def test_asha_counts_a_source_that_reports_rarely_from_its_first_reading_on() -> None:
    curves = [running("a", 0.9, steps=[100]), running("b", 0.5, steps=[100])]

    assert names(an_algorithm("asha"), *curves) == ["a"]


def test_asha_says_why(golden: Golden) -> None:
    others = [succeeded(f"t{i}", *[0.4 + i / 100] * 4) for i in range(5)]

    golden(reason("asha", running("x", 0.99, 0.97, 0.93, 0.91, steps=[1, 2, 3, 4]), *others))
    golden(reason("asha", running("x", 0.99, 0.91, 0.93), *others, reduction_factor=4))


def test_asha_shows_numbers_that_differ_differently(golden: Golden) -> None:
    golden(reason("asha", running("x", 0.50001), running("y", 0.50002)))


def test_asha_maximises(golden: Golden) -> None:
    curves = [running("low", 0.4, maximize=True), running("high", 0.8, maximize=True)]
    (verdict,) = an_algorithm("asha", maximize=True).judge(curves)

    assert (verdict.trial_name, verdict.value, verdict.resource) == ("low", "0.4", 1)
    golden(verdict.reason)


# --- hyperband --------------------------------------------------------------------------------------------------------


def test_hyperband_has_the_brackets_of_the_paper() -> None:
    brackets = BracketScheme(smallest=1, largest=81, factor=3)

    assert brackets.last == 4
    assert brackets.shares() == [5, 8, 15, 34, 81]  # table 1 of the paper, from the last column on
    assert [brackets.ladder(s).first for s in range(5)] == [81, 27, 9, 3, 1]


def test_hyperband_spreads_trials_over_brackets_by_their_names() -> None:
    brackets = BracketScheme(smallest=1, largest=81, factor=3)
    members = [brackets.bracket_of(f"trial-{i}") for i in range(2000)]

    counts = [members.count(s) for s in range(5)]
    assert sorted(counts) == counts
    assert counts[0] > 0
    assert members == [brackets.bracket_of(f"trial-{i}") for i in range(2000)]


def of_bracket(bracket: int, count: int, *, largest: int = 9) -> list[str]:
    """Return names of trials of a bracket."""
    brackets = BracketScheme(smallest=1, largest=largest, factor=3)
    found = (name for i in range(10_000) if brackets.bracket_of(name := f"t{i}") == bracket)
    return [next(found) for _ in range(count)]


def test_hyperband_compares_within_a_bracket_at_its_rungs() -> None:
    early, late = of_bracket(2, 2), of_bracket(1, 2)
    curves = [running(early[0], 0.9), running(early[1], 0.5), running(late[0], 0.9), running(late[1], 0.8)]

    assert names(an_algorithm("hyperband", max_resource=9), *curves) == [early[0]]
    longer = [running(late[0], 0.9, 0.9, 0.9), running(late[1], 0.8, 0.8, 0.8)]
    assert names(an_algorithm("hyperband", max_resource=9), *longer) == [late[0]]


def test_hyperband_waits_for_a_trial_that_has_succeeded_to_know_the_largest_resource() -> None:
    early = of_bracket(2, 2)
    curves = [running(early[0], 0.9), running(early[1], 0.5)]

    assert names(an_algorithm("hyperband"), *curves) == []
    assert names(an_algorithm("hyperband"), *curves, succeeded("whole", *[0.6] * 9)) != []


# --- wilcoxon ---------------------------------------------------------------------------------------------------------


def test_wilcoxon_stops_a_trial_that_is_worse_on_every_shared_fold(golden: Golden) -> None:
    best = succeeded("best", 0.10, 0.20, 0.15, 0.30, 0.25)
    worse = running("worse", 0.20, 0.32, 0.28, 0.45)
    noisy = running("noisy", 0.20, 0.10, 0.28, 0.20)

    (verdict,) = an_algorithm("wilcoxon").judge([worse, noisy, best, succeeded("other", 0.9, 0.9)])

    assert verdict.trial_name == "worse"
    assert verdict.value == str(0.3125)
    golden(verdict.reason)
    assert "p = 0.062" in verdict.reason


def test_wilcoxon_needs_shared_steps() -> None:
    best = succeeded("best", *[0.1] * 6, steps=range(6))
    elsewhere = running("elsewhere", *[0.9] * 6, steps=range(10, 16))
    few = running("few", *[0.9] * 4, steps=range(4))

    assert names(an_algorithm("wilcoxon"), best, elsewhere) == []
    assert names(an_algorithm("wilcoxon"), best, few) == ["few"]
    assert names(an_algorithm("wilcoxon", n_startup_steps=5), best, few) == []
    assert names(an_algorithm("wilcoxon", p_threshold=0.01), best, few) == []


def test_a_fold_that_is_no_number_is_a_failure_of_its_trial_for_wilcoxon() -> None:
    lucky, best = succeeded("lucky", 0.1, NAN, 0.1, 0.1), succeeded("best", 0.2, 0.2, 0.2, 0.2)

    assert names(an_algorithm("wilcoxon"), lucky, best, running("hole", 0.1, NAN), running("good", 0.1, 0.1)) == [
        "hole"
    ]
    assert names(an_algorithm("wilcoxon"), lucky, best, running("worse", 0.3, 0.4, 0.3, 0.5)) == ["worse"]


# --- patience ---------------------------------------------------------------------------------------------------------


def test_patience_stops_a_trial_that_no_longer_improves() -> None:
    algorithm = an_algorithm("patience", patience=3)

    assert names(algorithm, running("a", 0.9, 0.5, 0.6, 0.6)) == []
    assert names(algorithm, running("a", 0.9, 0.5, 0.6, 0.6, 0.6)) == ["a"]
    assert names(algorithm, running("a", 0.9, 0.5, 0.6, 0.6, 0.49)) == []


def test_patience_counts_small_steps_together() -> None:
    falling = running("a", *(1 - i / 100 for i in range(5)))

    assert names(an_algorithm("patience", patience=3, min_delta=0.02), falling) == []
    assert names(an_algorithm("patience", patience=3, min_delta=0.05), falling) == ["a"]
    assert names(an_algorithm("patience", patience=3, min_delta=0.05, grace=6), falling) == []


def test_patience_counts_what_is_no_number_as_no_improvement() -> None:
    algorithm = an_algorithm("patience", patience=2)

    assert names(algorithm, running("a", 0.5, NAN, NAN), running("b", NAN, NAN, NAN), running("c", NAN, NAN)) == [
        "a",
        "b",
    ]
    assert names(algorithm, running("a", NAN, NAN, 0.5)) == []


# --- threshold --------------------------------------------------------------------------------------------------------


def test_threshold_holds_from_its_step_on(golden: Golden) -> None:
    algorithm = an_algorithm("threshold", bound=0.5, step=3)

    assert names(algorithm, running("a", 0.9, 0.9)) == []
    assert names(algorithm, running("a", 0.9, 0.9, 0.9), running("b", 0.9, 0.9, 0.5)) == ["a"]
    assert names(algorithm, running("a", 0.1, 0.1, 0.1, 0.1, 0.6)) == ["a"]
    golden(reason("threshold", running("a", 0.9, steps=[3]), bound=0.5))


def test_threshold_maximises() -> None:
    algorithm = an_algorithm("threshold", maximize=True, bound=0.5)

    assert names(algorithm, running("a", 0.4, maximize=True), running("b", 0.6, maximize=True)) == ["a"]


def test_threshold_counts_what_is_no_number_in_a_row() -> None:
    algorithm = an_algorithm("threshold", max_nan=2)

    assert names(algorithm, running("a", NAN, 0.5, NAN), running("b", 0.5, NAN, math.inf)) == ["b"]


def test_threshold_has_a_rule_for_controllers_that_ask_only_once() -> None:
    assert an_algorithm("threshold", bound=0.5, step=3).static_rule() == StaticRule(0.5, 3)
    assert an_algorithm("threshold").static_rule() is None


# --- median -----------------------------------------------------------------------------------------------------------


def test_median_compares_with_finished_trials_at_the_same_step(golden: Golden) -> None:
    done = [succeeded(f"t{i}", 0.9, 0.8 - i / 10, 0.2) for i in range(5)]

    assert names(an_algorithm("median"), running("early", 0.85), *done) == []
    assert names(an_algorithm("median"), running("slow", 0.9, 0.7), running("good", 0.9, 0.55), *done) == ["slow"]
    golden(reason("median", running("slow", 0.9, 0.7), *done))


def test_median_counts_only_trials_that_nothing_stopped_and_that_came_as_far() -> None:
    done = [succeeded(f"t{i}", 0.5) for i in range(5)]
    gone = [stopped(f"gone-{i}", 0.1, 0.1) for i in range(9)]

    assert names(an_algorithm("median"), running("a", 0.9, 0.9), *done, *gone) == []
    assert names(an_algorithm("median"), running("a", 0.9), *done[:4], *gone) == []
    assert names(an_algorithm("median"), running("a", 0.9), *done, *gone) == ["a"]


def test_median_heeds_its_settings(golden: Golden) -> None:
    done = [succeeded(f"t{i}", i / 10, 0.0) for i in range(5)]
    curve = running("a", 0.25)

    assert names(an_algorithm("median"), curve, *done) == ["a"]
    assert names(an_algorithm("median", percentile=75), curve, *done) == []
    assert names(an_algorithm("median", grace=2), curve, *done) == []
    assert names(an_algorithm("median", n_startup_trials=6), curve, *done) == []
    assert names(an_algorithm("median", n_min_trials=6), curve, *done) == []
    golden(reason("median", curve, *done, percentile=25))


def test_median_passes_over_what_is_no_number() -> None:
    done = [succeeded(f"t{i}", 0.5, NAN) for i in range(5)]
    silent = [succeeded(f"s{i}", NAN, 0.5) for i in range(5)]

    assert names(an_algorithm("median"), running("a", 0.6, 0.6), running("nan", NAN), *done) == ["a", "nan"]
    assert names(an_algorithm("median"), running("a", 0.6), *silent) == []


def test_median_takes_the_reading_before_where_steps_differ() -> None:
    done = [succeeded(f"t{i}", 0.5, 0.3, steps=[10, 20]) for i in range(5)]

    assert names(an_algorithm("median"), running("a", 0.4, steps=[15]), *done) == []
    assert names(an_algorithm("median"), running("a", 0.4, steps=[20]), *done) == ["a"]
    assert names(an_algorithm("median"), running("a", 0.4, steps=[5]), running("b", 0.4, steps=[21]), *done) == []


# --- medianstop -------------------------------------------------------------------------------------------------------


def test_medianstop_judges_by_those_that_have_succeeded_now(golden: Golden) -> None:
    algorithm = an_algorithm("medianstop", start_step=2)
    hopeless = running("hopeless", 0.9, 0.9, 0.9)
    done = [succeeded(f"t{i}", 0.6, 0.4, 0.1) for i in range(3)]

    assert names(algorithm, hopeless, *done[:2], stopped("gone", 0.5, 0.5)) == []
    assert names(algorithm, hopeless, running("young", 0.9), running("good", 0.9, 0.45), *done) == ["hopeless"]
    golden(reason("medianstop", hopeless, *done, start_step=2))


# --- The signed-rank test ---------------------------------------------------------------------------------------------


def by_enumeration(differences: list[int]) -> float:
    """Return the p-value by trying every assignment of signs."""
    ordered = sorted(abs(d) for d in differences)
    rank = {size: (2 * ordered.index(size) + ordered.count(size) + 1) / 2 for size in ordered}
    left = [d for d in differences if d]
    observed = sum(rank[abs(d)] for d in left if d > 0)
    sums = [
        sum(rank[abs(d)] for d, sign in zip(left, signs, strict=True) if sign)
        for signs in product((0, 1), repeat=len(left))
    ]
    return sum(total >= observed for total in sums) / len(sums)


@settings(max_examples=40)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_it_is_exact_with_ties_and_zeros(differences: list[int]) -> None:
    assert p_value([float(d) for d in differences]) == pytest.approx(by_enumeration(differences))


def test_the_table_of_the_paper_is_met() -> None:
    """All of n differences of one sign: 1 / 2^n."""
    assert [p_value([1.0 + i for i in range(n)]) for n in (3, 5, 8)] == [1 / 8, 1 / 32, 1 / 256]
    assert p_value([0.0, 0.0]) == 1.0
    assert p_value([]) == 1.0


def test_many_differences_are_close_to_the_exact_value() -> None:
    some = [(-1.0) ** (i % 3 == 0) * (1 + i * 37 % 61) for i in range(25)]

    exact, normal = p_value(some), p_value([*some, 0.5])

    assert normal == pytest.approx(exact, rel=0.1)


# --- What an algorithm would have done --------------------------------------------------------------------------------


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
