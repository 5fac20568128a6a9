"""The rows that the picker of the page Compare offers. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from katib.doors.ui.experiment_list import ListQuery, list_page
from katib.doors.ui.numbers import shown_number
from katib.doors.ui.views import Summary
from katib.figures.data import measure_of
from katib.figures.trials import TrialTable
from katib.model.marks import Marks

MOST_OFFERED = 20


class OfferedRow(TypedDict):
    """An experiment or a trial to be ticked.

    Attributes:
        reference: `NAMESPACE/NAME`.
        name: Its name.
        tags: Its tags.
        words: State, value and algorithm.
    """

    reference: str
    name: str
    tags: Sequence[str]
    words: str


def offered_experiments(summaries: Sequence[Summary], text: str) -> dict[str, Any]:
    """Return the newest experiments that a search finds, and the number of all if that is larger, else 0.

    Args:
        summaries: The experiments, oldest first.
        text: A search as in the list of experiments.
    """
    page = list_page(summaries, ListQuery(text=text.strip()))
    rows = [
        _row(row["namespace"], row["name"], row["tags"], row["state"], _value(row["metric"], row["best"]["value"]))
        for row in page.rows[:MOST_OFFERED]
    ]
    return {"experiments": rows, "more": page.matching if page.matching > len(rows) else 0}


def offered_trials(namespace: str, trials: TrialTable, part: str) -> list[OfferedRow]:
    """Return the best trials whose name begins so."""
    best_first = np.argsort(measure_of(trials).costs, kind="stable").tolist()
    rows = [row for row in best_first if trials.names[row].startswith(part)][:MOST_OFFERED]
    return [
        _row(
            namespace,
            str(trials.names[row]),
            trials.marks.get(str(trials.names[row]), Marks()).tags,
            trials.state_of(row),
            _value(trials.objective.name, float(trials.objective_values[row])),
        )
        for row in rows
    ]


def _row(namespace: str, name: str, tags: Sequence[str], *words: str) -> OfferedRow:
    return {"reference": f"{namespace}/{name}", "name": name, "tags": tags, "words": " · ".join(filter(None, words))}


def _value(metric: str, value: str | float | None) -> str:
    known = value is not None and not (isinstance(value, float) and math.isnan(value))
    return f"{metric}={shown_number(value)}" if known and value is not None else ""
