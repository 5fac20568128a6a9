"""Words of errors."""

from __future__ import annotations

import pytest

from katib.model.wording import closest


@pytest.mark.parametrize(
    ("word", "choice"),
    [("bayes", "bayesianoptimization"), ("cmaess", "cmaes"), ("optimization", "bayesianoptimization"), ("gp", "")],
    ids=["begins so", "spelled almost so", "holds it", "too short"],
)
def test_the_closest_choice_begins_so_before_it_is_spelled_so(word: str, choice: str) -> None:
    assert closest(word, ["cmaes", "bayesianoptimization", "random"]) == choice
