"""Experiments and trials side by side."""

from __future__ import annotations

import pytest

from katib.api.types import Experiment
from katib.errors import InvalidError
from katib.runtime.objects import Key
from katib.ui.compare_views import Group, Row, experiment_groups, references, trial_groups, why_no_history
from tests.support.tuning import condition, make_experiment, make_trial, patched

DONE = condition("Succeeded", "TrialSucceeded", "Trial has succeeded")


def rows(groups: list[Group]) -> dict[str, Row]:
    return {row.title: row for group in groups for row in group.rows}


def texts(row: Row) -> list[str]:
    return [cell.text for cell in row.cells]


def with_best(name: str, value: str, **changes: str) -> Experiment:
    best = {
        "bestTrialName": f"{name}-1",
        "parameterAssignments": [{"name": key, "value": text} for key, text in changes.items()],
        "observation": {"metrics": [{"name": "loss", "min": value, "max": value, "latest": value}]},
    }
    return make_experiment(name, currentOptimalTrial=best)


def test_names_without_namespace_are_in_the_default_one_and_each_counts_once() -> None:
    found = references("trial", ["a", "default/a", "team/b", " ", ""])

    assert found == [Key("default", "a"), Key("team", "b")]


@pytest.mark.parametrize("text", ["a/b/c", "default/"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="is not NAMESPACE/NAME"):
        references("trial", [text])


def test_too_many_are_refused() -> None:
    with pytest.raises(InvalidError, match="leave some out"):
        references("trial", [f"t{number}" for number in range(15)])


def test_experiments_show_what_differs_and_which_is_better() -> None:
    found = rows(experiment_groups([with_best("a", "0.5", lr="1"), with_best("b", "0.25", lr="2", layers="3")]))

    assert texts(found["Best value"]) == ["0.5", "0.25"]
    assert [cell.is_best for cell in found["Best value"].cells] == [False, True]
    assert found["Best value"].differs
    assert not found["Algorithm"].differs
    assert texts(found["Best layers"]) == ["-", "3"]
    assert found["Best trial"].cells[1].link == "trials/default/b-1"


def test_values_of_different_objectives_have_no_best_one() -> None:
    other = patched(with_best("b", "0.25"), spec={"objective": {"type": "maximize"}})
    both = [with_best("a", "0.5"), other]

    assert not any(cell.is_best for cell in rows(experiment_groups(both))["Best value"].cells)
    assert why_no_history(both).startswith("a minimizes loss, but b maximizes loss")


def test_one_experiment_has_no_comparison() -> None:
    assert "Add another" in why_no_history([with_best("a", "1")])
    assert why_no_history([with_best("a", "1"), with_best("b", "1")]) == ""
    assert "No trial" in why_no_history([make_experiment("a"), make_experiment("b")])


def test_trials_show_their_parameters_side_by_side() -> None:
    trials = [make_trial("a", DONE, loss="0.5", x="1"), make_trial("b", DONE, loss="nan", x="1", y="<b>")]
    found = rows(trial_groups(trials))

    assert texts(found["x"]) == ["1", "1"]
    assert not found["x"].differs
    assert texts(found["y"]) == ["-", "<b>"]
    assert [cell.is_best for cell in found["loss"].cells] == [True, False]
