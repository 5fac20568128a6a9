"""Parameter importances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from katib.errors import InvalidError
from katib.figures.catalogue import draw, figure_named
from katib.figures.data import FigureOptions, measure_of
from katib.figures.importance import importances_of, rank_correlation
from katib.figures.targets import by_telling, target_of
from katib.figures.trials import ParameterInfo, TrialTable
from tests.support.figure_tables import LR, MOMENTUM, OPTIMIZER, a_table, data_of, many_trials
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.tables import trace

NAN = float("nan")


def figure_of(table: TrialTable) -> Any:
    """Return the figure."""
    return draw(figure_named("importances"), data_of(table), FigureOptions())


def noise(count: int, name: str = "noise") -> tuple[ParameterInfo, np.ndarray]:
    """Return a parameter that means nothing."""
    return ParameterInfo(name, "double", low=0, high=1), np.random.default_rng(8).random(count)


def test_the_parameter_that_decides_comes_first_and_each_time() -> None:
    found = importances_of(many_trials(400))

    assert found.names[0] == "lr"
    assert found.shares[0] > 0.8
    assert 0.9 < sum(found.alone) <= 1.02
    assert all(own <= share for own, share in zip(found.alone, found.shares, strict=True))
    assert found.explained > 0.8

    assert importances_of(many_trials(300)) == importances_of(many_trials(300))


def test_what_two_parameters_do_together_is_seen() -> None:
    draw_numbers = np.random.default_rng(2)
    one, other = draw_numbers.integers(0, 2, (2, 400))
    choices = ("no", "yes")
    values = {
        ParameterInfo("one", "categorical", choices=choices): one,
        ParameterInfo("other", "categorical", choices=choices): other,
        noise(400)[0]: noise(400)[1],
    }
    found = importances_of(a_table(values, {"loss": (one == other) + draw_numbers.normal(0, 0.05, 400)}))

    assert set(found.names[:2]) == {"one", "other"}
    assert min(found.shares[:2]) > 0.8
    assert max(found.alone) < 0.1  # neither decides anything by itself


def test_being_absent_is_a_value_of_its_own() -> None:
    momentum = np.where(np.arange(200) % 2, np.random.default_rng(1).random(200), NAN)
    loss = np.where(np.isnan(momentum), 1.0, 0.0) + np.random.default_rng(3).normal(0, 0.01, 200)
    parameter, column = noise(200)

    assert importances_of(a_table({MOMENTUM: momentum, parameter: column}, {"loss": loss})).names[0] == "momentum"


def test_of_many_trials_some_are_asked_and_the_figure_says_so(golden: Golden) -> None:
    figure = figure_of(many_trials(10_000))

    golden(figure.layout.annotations[0].text)
    assert len(figure.to_json()) < 20_000


def test_importances_that_mean_little_say_so(golden: Golden) -> None:
    draw_numbers = np.random.default_rng(6)
    values = {
        parameter: draw_numbers.random(60) for parameter in (MOMENTUM, ParameterInfo("p", "double", low=0, high=1))
    }
    figure = figure_of(a_table(values, {"loss": draw_numbers.random(60)}))

    golden(figure.layout.annotations[0].text.replace("<br>", " "))


def test_neither_diverged_trials_nor_the_scale_of_a_parameter_decide() -> None:
    table = many_trials(300)
    table.metrics["loss"][np.flatnonzero(measure_of(table).drawn)[:3]] = 1e30

    assert importances_of(table).names[0] == "lr"

    table, other = many_trials(300), many_trials(300)
    other.values["lr"][:] **= 3

    assert importances_of(table) == importances_of(other)


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({LR: [1e-3] * 9, MOMENTUM: range(9)}, "takes 10 trials with a value; there are 9"),
        ({LR: [1e-3] * 20, MOMENTUM: np.linspace(0, 1, 20)}, "takes two parameters that vary"),
    ],
    ids=["few trials", "one parameter varies"],
)
def test_importances_take_trials_and_parameters(values: Any, cause: str) -> None:
    count = len(next(iter(values.values())))

    with pytest.raises(InvalidError, match=cause):
        figure_of(a_table(values, {"loss": np.arange(count)}))


def test_a_metric_of_one_trial_has_no_importances() -> None:
    table = many_trials(60)
    column = np.full(60, NAN)
    column[int(np.flatnonzero(measure_of(table).drawn)[0])] = 1.0
    table.metrics["rare"] = column  # type: ignore[index]  # a Mapping to its readers

    with refused("figure-impossible"):
        draw(figure_named("importances"), data_of(table), FigureOptions(metric="rare"))


def test_the_most_telling_parameter_is_found_at_a_glance() -> None:
    assert by_telling(many_trials(500))[0] == "lr"


def test_names_are_never_html() -> None:
    evil = ParameterInfo("<script>", "double", low=0, high=1)
    table = many_trials(50)
    values = {evil: np.random.default_rng(0).random(50), OPTIMIZER: table.values["optimizer"]}

    assert "<script>" not in figure_of(a_table(values, {"loss": np.random.default_rng(1).random(50)})).to_json()


def test_the_correlation_of_ranks_stands_beside_importance_with_its_sign() -> None:
    random = np.random.default_rng(3)
    up, down = random.random((2, 200))
    choice = ParameterInfo("choice", "categorical", choices=("a", "b"))
    values = {noise(200, "up")[0]: up, noise(200, "down")[0]: down, choice: random.integers(0, 2, 200)}
    table = a_table(values, {"loss": np.exp(9 * up) + 0 * down})
    target = target_of(table)

    assert rank_correlation(table, "up", target) == pytest.approx(1)  # whatever the scale
    assert abs(rank_correlation(table, "down", target) or 0) < 0.2
    assert rank_correlation(table, "choice", target) is None
    bars = trace(draw(figure_named("importances"), data_of(table), FigureOptions()), "rank correlation")
    assert dict(zip(bars.customdata, bars.x, strict=True))["up"] == pytest.approx(1)
