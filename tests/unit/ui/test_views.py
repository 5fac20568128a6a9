"""What pages say of experiments, above one and beside others, and what a page in one file holds."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import yaml

from katib.doors.ui.compare_views import (
    ComparedGroup,
    ComparedRow,
    experiment_groups,
    references,
    trial_groups,
    why_no_history,
)
from katib.doors.ui.head import HEIGHT, WIDTH, head_figures
from katib.doors.ui.numbers import told_apart
from katib.doors.ui.report import bundled_script, trials_json
from katib.doors.ui.views import (
    action_fields,
    copies_of,
    experiment_head,
    progress_parts,
    typed_assignments,
)
from katib.engine.runtime.objects import Key
from katib.errors import InvalidError
from katib.figures.trials import Objective, TrialTable
from katib.model.types import Experiment
from tests.support.golden import Golden
from tests.support.tables import make_table
from tests.support.tuning import START, condition, make_experiment, make_pareto_experiment, make_trial, patched

NOW = START + timedelta(seconds=100)


def test_what_is_copied_keeps_its_numbers_and_its_choices() -> None:
    values = {"lr": 0.001, "layers": 3, "optimizer": 'it\'s a "test"\n', "when": "no"}
    copies = copies_of(values)

    assert yaml.safe_load(copies["YAML"]) == values
    assert json.loads(copies["JSON"]) == values
    assert ast.literal_eval(copies["Python"]) == values
    assert shlex.split(copies["Command line"])[0] == "--lr=0.001"
    assert len(shlex.split(copies["Command line"])) == len(values)

    experiment = make_experiment()
    kinds = {"lr": "double", "layers": "int", "size": "discrete", "width": "categorical"}
    experiment = patched(
        experiment, spec={"parameters": [{"name": name, "parameterType": kind} for name, kind in kinds.items()]}
    )
    typed = typed_assignments(experiment, {"lr": "1e-3", "layers": "3", "size": "16", "width": "32", "other": "1"})

    assert typed == {"lr": 0.001, "layers": 3, "size": 16, "width": "32", "other": "1"}


def test_a_bar_tells_apart_how_trials_ended() -> None:
    experiment = make_experiment(trialsSucceeded=5, trialsFailed=2, trialsEarlyStopped=1, trialsRunning=2)

    assert progress_parts(experiment_head(experiment)) == [
        ("Succeeded", 5),
        ("EarlyStopped", 1),
        ("Failed", 2),
        ("Running", 2),
        ("to come", 2),
    ]


def test_the_time_left_follows_from_the_pace_unless_it_ended_or_was_stopped(golden: Golden) -> None:
    experiment = make_experiment("demo", condition("Running"), trialsSucceeded=4)

    golden(head_figures(experiment, None, NOW)["time"])
    assert head_figures(make_experiment("demo", condition("Running")), None, NOW)["time"] == "running for 100s"
    assert head_figures(patched(experiment, status=None), None, NOW)["time"] == ""

    ended = make_experiment("demo", condition("Succeeded"), completionTime="2030-01-01T12:01:00Z")

    assert head_figures(ended, None, NOW)["time"] == "took 60s"

    stopped = {**condition("Running", "ExperimentStopped", "Experiment is stopped"), "status": "False"}
    experiment = make_experiment("demo", condition("Created", message="Experiment is created"), stopped)
    head = experiment_head(experiment)

    assert (head["state"], head["reason"]) == ("Stopped", "Experiment is stopped")
    assert head_figures(experiment, None, NOW)["time"] == "began 100s ago"

    assert "3 trials" in experiment_head(make_pareto_experiment())["pareto"]
    assert experiment_head(make_experiment())["pareto"] == ""


def test_a_trial_by_hand_begins_with_the_values_of_the_best_one(golden: Golden) -> None:
    experiment = make_experiment(
        currentOptimalTrial={"bestTrialName": "demo-1", "parameterAssignments": [{"name": "lr", "value": "0.5"}]}
    )
    space = {"min": "0.1", "max": "1", "step": "0.1"}
    experiment = patched(
        experiment,
        spec={
            "parameters": [
                {"name": "lr", "parameterType": "double", "feasibleSpace": space},
                {"name": "optimizer", "parameterType": "categorical", "feasibleSpace": {"list": ["adam", "sgd"]}},
            ]
        },
    )
    lr, optimizer = action_fields(experiment)

    assert lr.value == "0.5"
    golden(lr.hint)
    assert (optimizer.value, optimizer.choices) == ("adam", ("adam", "sgd"))


def figures(table: TrialTable | None, seconds: float = 100, **status: Any) -> dict[str, Any]:
    running = make_experiment("demo", condition("Running"), startTime="2030-01-01T12:00:00Z", **status)
    return head_figures(running, table, START + timedelta(seconds=seconds))


def test_imported_trials_tell_how_long_they_took() -> None:
    """They ran before the experiment was made, which itself took no more than the import."""
    experiment = make_experiment("demo", condition("Succeeded"), trialsSucceeded=2, runSeconds=23.0)
    made = experiment.metadata.creation_timestamp
    assert made is not None
    first = made.timestamp() - 100_000
    times = {"started": np.array([first, first + 20_000]), "ended": np.array([first + 20_000, first + 39_600])}
    found = head_figures(experiment, replace(make_table([1.0, 0.5]), **times), NOW)

    assert (found["time"], found["rate"]) == ("took 11h", "4.4 a day")


def test_failures_are_counted_by_their_cause() -> None:
    causes = ("CUDA out of memory", "bad lr", "CUDA out of memory")
    failed = [
        make_trial(f"demo-{index}", condition("Failed", message=f"Trial has failed: {cause}"), index=index)
        for index, cause in enumerate(causes)
    ]

    assert figures(TrialTable.of(make_experiment(), failed))["causes"] == [("CUDA out of memory", 2), ("bad lr", 1)]


def points(line: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, _, y in (point.partition(",") for point in line.split())]


@pytest.mark.parametrize("maximize", [True, False])
def test_the_line_of_the_best_goes_to_the_better_side_within_its_picture(maximize: bool) -> None:
    line = points(figures(make_table([5.0, 7.0, 3.0, 4.0, 9.0, 1.0], maximize=maximize))["spark"])
    heights = [y for _, y in line]

    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in line)
    assert heights == sorted(heights, reverse=maximize)
    assert heights[0] != heights[-1]
    assert [x for x, _ in line] == sorted(x for x, _ in line)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [math.nan, math.nan]])
def test_without_an_improvement_there_is_no_line(values: list[float]) -> None:
    assert figures(make_table(values))["spark"] == ""


def test_the_line_of_many_trials_is_short() -> None:
    assert len(figures(make_table(np.linspace(1, 0, 50_000).tolist()))["spark"]) < 2_500


@pytest.mark.parametrize(
    ("values", "maximize"),
    [
        ([*[1.0] * 18, 0.75, 0.9], False),
        ([*[1.0] * 18, 1.25, 0.9], True),
        ([*[1.0] * 18, 2.0, 3.0], False),
        ([1.0, 0.5], False),
    ],
)
def test_the_best_value_has_its_change_over_the_last_tenth(values: list[float], maximize: bool, golden: Golden) -> None:
    golden(figures(make_table(values, maximize=maximize))["change"])


@pytest.mark.parametrize(
    ("done", "seconds", "expected"),
    [(1, 10, ""), (40, 10, "4 a second"), (10, 120, "5 a minute"), (3, 7_200, "1.5 an hour"), (2, 172_800, "1 a day")],
)
def test_the_rate_has_the_unit_in_which_it_can_be_read(done: int, seconds: float, expected: str) -> None:
    assert figures(None, seconds, trialsSucceeded=done)["rate"] == expected


def test_what_needs_the_trials_is_empty_while_they_are_read() -> None:
    found = figures(None, trialsFailed=2, trialMetricsUnavailable=1)

    assert (found["spark"], found["change"]) == ("", "")
    assert (found["lost"], found["strategy"]) == (3, "min")


def test_the_front_of_several_objectives_grows_and_what_is_feasible_is_counted(golden: Golden) -> None:
    objectives = (Objective("loss", maximize=False), Objective("speed", maximize=True))
    values = [*range(20, 1, -1), 0.5]
    table = make_table(values, more={"speed": list(range(20))}, objectives=objectives)
    experiment = make_pareto_experiment("demo", condition("Running"), trialsSucceeded=20, trialsInfeasible=4)
    found = head_figures(experiment, table, START)
    flat = head_figures(experiment, make_table([2.0] * 20, more={"speed": [1.0] * 20}, objectives=objectives), START)

    assert found["front"] == {"count": 3, "volume": 12.5}
    assert points(found["spark"])[-1] == (WIDTH - 2, 2.0)  # on top
    assert found["change"].startswith("+")
    assert (found["feasible"], found["measured"], found["constraints"]) == (16, 20, "memory <= 8")
    assert flat["spark"] == ""
    golden(flat["change"])


DONE = condition("Succeeded", "TrialSucceeded", "Trial has succeeded")


def test_compared_numbers_have_as_many_digits_as_tell_them_apart() -> None:
    assert told_apart(["0.98134", "0.98127", "12345.678"]) == ["0.98134", "0.98127", "12,346"]
    assert told_apart(["0.5", "0.5000", "1e9"]) == ["0.5", "0.5", "1000000000"]


def rows(groups: list[ComparedGroup]) -> dict[str, ComparedRow]:
    return {row.title: row for group in groups for row in group.rows}


def texts(row: ComparedRow) -> list[str]:
    return [cell.text for cell in row.cells]


def with_best(name: str, value: str, **changes: str) -> Experiment:
    best = {
        "bestTrialName": f"{name}-1",
        "parameterAssignments": [{"name": key, "value": text} for key, text in changes.items()],
        "observation": {"metrics": [{"name": "loss", "min": value, "max": value, "latest": value}]},
    }
    return make_experiment(name, currentOptimalTrial=best)


def test_names_without_namespace_are_in_the_default_one_and_each_counts_once() -> None:
    assert references("trial", ["a", "default/a", "team/b", " ", ""]) == [Key("default", "a"), Key("team", "b")]


@pytest.mark.parametrize("text", ["a/b/c", "default/"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="is not NAMESPACE/NAME"):
        references("trial", [text])


def test_too_many_names_are_refused_and_one_has_no_comparison() -> None:
    with pytest.raises(InvalidError, match="leave some out"):
        references("trial", [f"t{number}" for number in range(41)])

    assert "Add another" in why_no_history([with_best("a", "1")])
    assert why_no_history([with_best("a", "1"), with_best("b", "1")]) == ""
    assert "No trial" in why_no_history([make_experiment("a"), make_experiment("b")])

    many = [with_best(f"e{n}", "1") for n in range(15)]

    assert "choose groups" in why_no_history(many)
    assert why_no_history(many, is_grouped=True) == ""

    other = patched(with_best("b", "0.25"), spec={"objective": {"type": "maximize"}})
    both = [with_best("a", "0.5"), other]

    assert not any(cell.is_best for cell in rows(experiment_groups(both))["Best value"].cells)
    assert why_no_history(both).startswith("a minimizes loss")


def test_experiments_and_trials_stand_side_by_side() -> None:
    found = rows(experiment_groups([with_best("a", "0.5", lr="1"), with_best("b", "0.25", lr="2", layers="3")]))

    assert texts(found["Best value"]) == ["0.5", "0.25"]
    assert [cell.is_best for cell in found["Best value"].cells] == [False, True]
    assert found["Best value"].differs
    assert not found["Algorithm"].differs
    assert texts(found["Best layers"]) == ["-", "3"]
    assert found["Best trial"].cells[1].link == "trials/default/b-1"

    trials = [make_trial("a", DONE, loss="0.5", x="1"), make_trial("b", DONE, loss="nan", x="1", y="<b>")]
    found = rows(trial_groups(trials))

    assert texts(found["x"]) == ["1", "1"]
    assert not found["x"].differs
    assert texts(found["y"]) == ["-", "<b>"]
    assert [cell.is_best for cell in found["loss"].cells] == [True, False]


def test_the_script_of_a_file_imports_nothing_and_names_nothing_twice() -> None:
    text = bundled_script().text
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)

    assert not re.findall(r"^(?:import|export)\b", text, re.MULTILINE)
    assert "</script" not in text
    assert sorted(set(names)) == sorted(names)


def test_values_without_a_number_in_json_are_null_or_text() -> None:
    experiment = make_experiment("demo")
    trials = [
        make_trial("demo-0", condition("Succeeded"), loss="inf", x="1"),
        make_trial("demo-1", condition("Failed"), index=1, x="2"),
    ]
    made = trials_json(TrialTable.of(experiment, trials))

    assert made is not None
    assert next(column["values"] for column in made["columns"] if column["key"] == "loss") == ["inf", None]
    assert made["best"] is None


@pytest.mark.parametrize(
    ("values", "start", "step"),
    [
        pytest.param([2.0, *[3.0] * 18, 1.0], "1 better than the first trial (2)", "still improving", id="improving"),
        pytest.param(
            [2.0, 0.5, *[3.0] * 18], "1.5 better than the first trial (2)", "last 18 trials brought", id="flat"
        ),
        pytest.param([1.0] * 20, "", "last 19 trials brought", id="the-first-is-the-best"),
        pytest.param([*[2.0] * 13, 1.0, *[3.0] * 6], "1 better than the first trial (2)", "", id="not-long-ago"),
        pytest.param([1.0] * 5, "", "", id="few"),
    ],
)
def test_an_ended_experiment_says_what_it_won_and_what_comes_next(values: list[float], start: str, step: str) -> None:
    found = head_figures(make_experiment("demo", condition("Succeeded")), make_table(values), NOW)

    assert found["start"] == start
    assert [step in sentence for sentence in found["next"]] == [True] * bool(step)
