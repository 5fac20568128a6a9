"""Early stopping: the stopped trials, their progress, and the saved work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from katib.figures.axes import compact, hovered, time_unit
from katib.figures.curves import CURVE_POINTS, rows_of
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.style import (
    BLUE,
    STATE_COLOURS,
    STATE_MARKS,
    add_level,
    add_note,
    fair_rows,
    html_safe,
    new_figure,
    places,
)
from katib.figures.trials import Floats, Rows, TrialTable
from katib.service.tuning.states import stops_early

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_OF_A_STATE = 700


class _Work(NamedTuple):
    """Progress of trials.

    Attributes:
        done: Progress of each trial; NaN if unknown or irrelevant.
        word: The saved quantity: `steps`, `readings` or `time`.
        by: The unit of progress: `step`, `reading` or `time`.
        note: A note for the reader.
    """

    done: Floats
    title: str
    word: str
    by: str
    note: str = ""


def draw_stopping(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw the progress of each trial, stopped or complete, the usual length, and the share of the saved work.

    By steps, or by readings if the programs report no steps, of an even selection of 50 stopped and 50 complete trials.
    By time, of all trials.
    """
    trials = data.trials
    stopped, complete = trials.in_states("EarlyStopped"), trials.in_states("Succeeded")
    work = (_work_by_step(data) or _work_by_reading(data)) if choice.by == "step" else None
    if work is None or not np.isfinite(work.done[stopped]).any():
        note = "the programs report no steps, so time is shown instead" if choice.by == "step" else ""
        work = _work_by_time(trials, note)
    figure = new_figure(title=f"{data.name}: early stopping", x="trial", y=work.title)
    figure.update_layout(yaxis={"rangemode": "tozero"}, meta={"by": work.by})
    for state, mask in (("Succeeded", complete), ("EarlyStopped", stopped)):
        _add_state(figure, trials, work.done, places(mask & np.isfinite(work.done)), state)
    sentence = f"{int(stopped.sum()):,} of {len(trials):,} trials were stopped early"
    ends = work.done[complete & np.isfinite(work.done)]
    if len(ends):
        usual = float(np.median(ends))
        add_level(figure, [1, max(len(trials), 2)], [usual, usual], "median of the complete ones", BLUE)
        sentence += f" and about {saved_work(work.done, stopped, complete):.0%} of the {work.word} saved"
    else:
        sentence += "; none has run to its end, so the saving is not known"
    add_note(figure, sentence, work.note)
    return figure


def saved_work(done: Floats, stopped: npt.NDArray[np.bool_], complete: npt.NDArray[np.bool_]) -> float:
    """Return the share of work saved, if stopped trials would have run as long as the median complete one.

    Trials of unknown progress count as the average of their state.

    Args:
        stopped: Mask of trials that were stopped early.
        complete: Mask of trials that ran to their end; the progress of at least one is known.
    """
    known = np.isfinite(done)
    usual = float(np.median(done[complete & known]))
    if not (stopped & known).any():
        return 0.0
    saved = float(stopped.sum()) * float(np.maximum(usual - done[stopped & known], 0.0).mean())
    spent = float(stopped.sum()) * float(done[stopped & known].mean())
    spent += float(complete.sum()) * float(done[complete & known].mean())
    return saved / (saved + spent) if saved + spent else 0.0


def nothing_was_stopped(data: ExperimentData) -> str:
    """Return an obstacle if no trial was stopped early."""
    if data.trials.in_states("EarlyStopped").any():
        return ""
    if not stops_early(data.experiment):
        return "The experiment has no early stopping."
    return "No trial has been stopped early yet."


def _work_by_step(data: ExperimentData) -> _Work | None:
    """Return the last step of each trial with a known curve; None if none has steps."""
    last = {
        name: float(np.nanmax(curve.steps))
        for name, curve in data.curves.items()
        if curve.steps is not None and np.isfinite(curve.steps).any()
    }
    return _work_of_some(data.trials, last, "last step", "step") if last else None


def _work_by_reading(data: ExperimentData) -> _Work | None:
    """Return the number of readings of each trial; None if none has any, or some were left out."""
    counts = {name: float(len(curve.values)) for name, curve in data.curves.items()}
    if not counts or max(counts.values()) >= CURVE_POINTS:
        return None
    return _work_of_some(data.trials, counts, "readings", "reading")


def _work_of_some(trials: TrialTable, found: Mapping[str, float], title: str, by: str) -> _Work:
    done = np.full(len(trials), np.nan)
    rows = rows_of(trials, found)
    for name, row in rows.items():
        done[row] = found[name]
    ended = int(trials.in_states("EarlyStopped", "Succeeded").sum())
    return _Work(done, title, f"{by}s", by, f"{len(rows):,} of {ended:,} trials drawn" if len(rows) < ended else "")


def _work_by_time(trials: TrialTable, note: str) -> _Work:
    durations = np.maximum(trials.durations, 0.0)
    durations[~trials.in_states("EarlyStopped", "Succeeded")] = np.nan
    unit = time_unit(float(np.nanmax(durations)) if np.isfinite(durations).any() else 0.0)
    return _Work(durations / unit.seconds, f"{unit.name} run", "time", "time", note)


def _add_state(figure: go.Figure, trials: TrialTable, done: Floats, rows: Rows, state: str) -> None:
    drawn = fair_rows(rows, _MOST_OF_A_STATE)
    if len(drawn):
        figure.add_scatter(
            x=drawn + 1,
            y=compact(done[drawn]),
            mode="markers",
            name=state,
            marker={
                "color": STATE_COLOURS[state],
                "symbol": STATE_MARKS[state],
                "size": 8 if state == "EarlyStopped" else 6,
                "opacity": 0.8,
            },
            customdata=html_safe(list(trials.names[drawn])),
            hovertemplate="%{customdata}<br>" + hovered("y", done[drawn]) + "<extra>" + state + "</extra>",
        )
