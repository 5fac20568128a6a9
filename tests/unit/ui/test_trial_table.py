"""Which trials a table shows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.doors.ui.trial_columns import ColumnGroup, columns_of
from katib.doors.ui.trial_table import TableQuery, page_of, parse_filter
from katib.errors import InvalidError
from katib.figures.data import measure_of
from katib.figures.trials import STATES, Objective, ParameterInfo, TrialTable
from katib.model.marks import Marks
from katib.model.types import Experiment
from tests.support.tables import make_table
from tests.support.trial_tables import SEARCHES, SPACE, made_table, plain_rows
from tests.support.tuning import condition, make_experiment, make_trial

TABLE = made_table(300)
ROWS = plain_rows(TABLE)

ENDS = st.none() | st.floats(-1, 10, allow_nan=False).map(lambda value: round(value, 3))
RANGES = st.tuples(st.sampled_from(["lr", "layers", "accuracy", "duration", "number"]), ENDS, ENDS)
CHOICES = st.lists(st.sampled_from(SPACE[2].choices), min_size=1, unique=True)


@given(
    states=st.lists(st.sampled_from(STATES), unique=True),
    ranges=st.lists(RANGES, max_size=2),
    choices=st.none() | CHOICES,
    text=st.sampled_from(["", "a1", "ADAM", "demo", "no such"]),
    sort=st.sampled_from(["", "trial", "state", "lr", "layers", "optimizer", "accuracy", "duration", "number"]),
    descending=st.booleans(),
)
def test_a_table_shows_what_plain_python_would_pick(
    states: list[str],
    ranges: list[tuple[str, float | None, float | None]],
    choices: list[str] | None,
    text: str,
    sort: str,
    descending: bool,
) -> None:
    def show(end: float | None) -> str:
        return "" if end is None else repr(end)

    def passes(row: dict[str, Any]) -> bool:
        for key, low, high in ranges:
            value = row[key]
            if value is None or (low is not None and value < low) or (high is not None and value > high):
                return False
        return (
            (not states or row["state"] in states)
            and (choices is None or row["optimizer"] in choices)
            and (text.lower() in row["trial"] or text.lower() in (row["optimizer"] or ""))
        )

    where = [f"{key}:{show(low)}..{show(high)}" for key, low, high in ranges]
    where += [] if choices is None else [f"optimizer={'|'.join(choices)}"]
    expected = [row for row in ROWS if passes(row)]
    if sort:
        with_value = [row for row in expected if row[sort] is not None]
        key = (lambda row: STATES.index(row["state"])) if sort == "state" else (lambda row: row[sort])
        ordered = sorted(with_value, key=key, reverse=descending)
        expected = ordered + [row for row in expected if row[sort] is None]
    elif descending:
        expected.reverse()

    query = TableQuery(tuple(states), tuple(where), text, sort, descending, size=1000)
    page = page_of(TABLE, query)

    assert [row["trial"] for row in expected] == [row.name for row in page.rows]
    assert (len(expected), len(ROWS)) == (page.matching, page.total)


@pytest.mark.parametrize("text", SEARCHES)
def test_a_search_compares_columns_and_finds_texts(text: str) -> None:
    found = [row.name for row in page_of(TABLE, TableQuery(text=text, size=1000)).rows]

    assert found == [row["trial"] for row in ROWS if SEARCHES[text](row)]


def test_the_cause_of_a_failure_is_found_and_shown() -> None:
    trials = [
        make_trial(f"demo-{index}", condition("Failed", message=f"Trial has failed: {cause}"), index=index)
        for index, cause in enumerate(("CUDA out of memory", "no space left"))
    ]
    [row] = page_of(TrialTable.of(make_experiment(), trials), TableQuery(text='"out of memory"')).rows

    assert (row.name, row.failure) == ("demo-0", "CUDA out of memory")


def test_cells_are_short_and_have_every_digit_behind_them() -> None:
    lr, layers = page_of(TABLE, TableQuery(columns=("lr", "layers"), size=1)).rows[0].cells

    assert float(lr.exact) == TABLE.values["lr"][0]
    assert lr.shown == f"{TABLE.values['lr'][0]:.4g}"
    assert layers.exact == str(int(TABLE.values["layers"][0]))


def test_without_a_choice_a_table_shows_state_objectives_and_parameters() -> None:
    page = page_of(TABLE, TableQuery())

    assert [column.key for column in page.shown] == [
        "number",
        "state",
        "accuracy",
        "loss",
        "lr",
        "layers",
        "optimizer",
        "duration",
    ]


def test_the_best_trial_is_marked_wherever_it_stands() -> None:
    best = measure_of(TABLE).best
    page = page_of(TABLE, TableQuery(sort="accuracy", descending=True, size=10))

    assert best is not None
    assert [TABLE.names[best]] == [row.name for row in page.rows if row.is_best]


@pytest.mark.parametrize("maximize", [True, False])
def test_trials_that_cannot_be_the_best_come_behind_all_that_can(maximize: bool) -> None:
    table = make_table(
        [9.0, 1.0, 5.0, math.nan, 0.5, 8.0],
        ["Succeeded", "Succeeded", "EarlyStopped", "Failed", "Succeeded", "Running"],
        feasible=[False, True, True, True, False, True],
        maximize=maximize,
    )
    order = [3, 2, 1, 6, 5, 4] if maximize else [2, 3, 5, 6, 1, 4]
    page = page_of(table, TableQuery(sort="loss", descending=maximize))

    assert [f"trial-{number}" for number in order] == [row.name for row in page.rows]
    assert [row.name for row in page.rows if not row.is_feasible] == [
        f"trial-{number}" for number in order if number in (1, 5)
    ]
    assert page.rows[0].is_best


def test_other_columns_are_ordered_by_their_numbers_alone() -> None:
    table = make_table([1.0, 2.0], more={"seconds": [3.0, 4.0]}, feasible=[True, False])
    page = page_of(table, TableQuery(sort="seconds", descending=True))

    assert [row.name for row in page.rows] == ["trial-2", "trial-1"]


def test_the_heading_of_a_metric_says_which_reading_is_shown() -> None:
    objective = {
        "type": "maximize",
        "objectiveMetricName": "accuracy",
        "additionalMetricNames": ["loss", "seconds"],
        "metricStrategies": [{"name": "loss", "value": "min"}, {"name": "seconds", "value": "max"}],
    }
    table = TrialTable.of(Experiment.decode({"metadata": {"name": "demo"}, "spec": {"objective": objective}}), ())
    headings = {column.heading for column in columns_of(table).values() if column.group is ColumnGroup.METRIC}

    assert headings == {"accuracy (max)", "loss (min)", "seconds (at the best)"}


def test_a_page_behind_the_last_one_is_the_last_one_or_has_no_rows() -> None:
    page = page_of(TABLE, TableQuery(page=99, size=100))

    assert (page.query.page, page.pages, page.first, page.last) == (3, 3, 201, 300)

    page = page_of(made_table(0), TableQuery(sort="trial", text="x", where=("lr:0..1",)))

    assert (page.matching, page.total, page.pages, page.first) == (0, 0, 1, 0)


def test_filters_are_ranges_numbers_or_times() -> None:
    page = page_of(TABLE, TableQuery(where=("layers:1..2,7..8",), size=1000, columns=("layers",)))

    assert {"1", "2", "7", "8"} == {row.cells[0].exact for row in page.rows}

    page = page_of(TABLE, TableQuery(where=("layers=3|5",), size=1000, columns=("layers",)))

    assert {"3", "5"} == {row.cells[0].exact for row in page.rows}

    columns = columns_of(TABLE)
    condition = parse_filter(columns, "created:2030-03-17T17:46:40Z..2030-03-17T17:46:49+00:00")

    assert condition.mask(TABLE).sum() == 10
    assert condition == parse_filter(columns, condition.text)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("nothing:1..2", "filter-column"),
        ("lr", "filter-column"),
        ("lr:1", "filter-range"),
        ("optimizer:1..2", "filter-range"),
        ("lr:low..2", "filter-value"),
        ("lr:nan..2", "filter-value"),
        ("lr=adam", "filter-value"),
        ("created:monday..", "filter-value"),
    ],
)
def test_a_filter_that_is_not_understood_is_refused_in_a_line(text: str, origin: str) -> None:
    with pytest.raises(InvalidError) as refused:
        page_of(TABLE, TableQuery(where=(text,)))

    assert [origin] == [error.origin for error in refused.value.errors]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("query", "origin"),
    [
        (TableQuery(sort="colour"), "table-column"),
        (TableQuery(columns=("colour",)), "table-column"),
        (TableQuery(states=("Odd",)), "table-state"),
    ],
)
def test_what_there_is_not_cannot_be_asked_for(query: TableQuery, origin: str) -> None:
    with pytest.raises(InvalidError) as refused:
        page_of(TABLE, query)

    assert [origin] == [error.origin for error in refused.value.errors]


def odd_table() -> TrialTable:
    """A table whose names and choices have every mark that a filter is written with."""
    choices = ("a|b", "back\\slash", "a", "")
    names = ("state", "x:y", "x", "p=q")
    numbers = np.array([0.0, 1, 2, 3])
    return replace(
        made_table(4),
        values=dict.fromkeys(names, numbers),
        metrics={"x": numbers},
        parameters=tuple(ParameterInfo(name, "categorical", choices=choices) for name in names),
        objectives=(Objective("x", maximize=False),),
    )


def test_names_that_meet_are_told_apart() -> None:
    columns = columns_of(odd_table())

    assert {"state", "x", "trial.state", "metric.x", "x:y", "p=q"} <= set(columns)
    assert [(columns[key].name, str(columns[key].group)) for key in ("state", "trial.state")] == [
        ("state", "parameter"),
        ("state", "trial"),
    ]


@pytest.mark.parametrize("value", ["a|b", "back\\slash", "a", ""])
@pytest.mark.parametrize("name", ["x:y", "p=q"])
def test_a_filter_can_be_written_of_any_name_and_value(name: str, value: str) -> None:
    table = odd_table()
    columns = columns_of(table)
    written = value.replace("\\", "\\\\").replace("|", "\\|")

    condition = parse_filter(columns, f"{name}={written}")

    assert (value,) == condition.values
    assert f"{name}={written}" == condition.text
    assert condition.mask(table).sum() == 1


def test_a_question_survives_its_address() -> None:
    query = TableQuery(("Failed",), ("lr:0.1..", "optimizer=a&b|c"), "x y", "lr", True, 3, 50, ("lr", "loss"))

    assert parse_qs(query.address()) == {
        "state": ["Failed"],
        "where": ["lr:0.1..", "optimizer=a&b|c"],
        "text": ["x y"],
        "sort": ["lr"],
        "order": ["down"],
        "page": ["3"],
        "size": ["50"],
        "column": ["lr", "loss"],
    }


@pytest.mark.parametrize("text", ["optimizer=adam|\\-", "optimizer=\\-", "accuracy:0.9..,none", "accuracy:none"])
def test_trials_without_a_value_can_be_asked_for(text: str) -> None:
    condition = parse_filter(columns_of(TABLE), text)
    key = text.partition("=")[0].partition(":")[0]
    passes = {row[key] for row in (ROWS[place] for place in np.flatnonzero(condition.mask(TABLE)))}

    assert None in passes
    assert text == condition.text
    assert ("adam" in text) == ("adam" in passes)
    assert "absent" in condition.words


def test_tags_fronts_and_other_columns_order_and_filter() -> None:
    marks = {"trial-2": Marks(("Candidate",)), "trial-4": Marks(notes="the candidate\nof May")}
    table = replace(make_table([5.0, 4.0, 3.0, 2.0]), marks=marks)

    def found(query: TableQuery) -> list[str]:
        return [row.name for row in page_of(table, query).rows]

    assert found(TableQuery(text="CANDI")) == ["trial-2", "trial-4"]
    assert page_of(table, TableQuery(text="may")).rows[0].marks == marks["trial-4"]

    objectives = (Objective("loss", maximize=False), Objective("speed", maximize=True))
    more = {"speed": [1.0, 5.0, 4.0, 9.0]}
    table = make_table([1.0, 2.0, 3.0, 0.5], more=more, objectives=objectives, feasible=[True, True, True, False])
    page = page_of(table, TableQuery(where=("front=yes",)))

    assert [(row.name, row.is_best) for row in page.rows] == [("trial-1", True), ("trial-2", True)]
    assert page.has_front
    assert "front" not in columns_of(make_table([1.0]))
