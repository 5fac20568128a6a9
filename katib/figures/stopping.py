"""What early stopping stopped, when, and how much work that saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from katib.figures.curves import rows_of
from katib.figures.data import Choice, ExperimentData
from katib.figures.scales import compact, time_unit
from katib.figures.style import BLUE, STATE_COLOURS, STATE_MARKS, add_note, html_safe, new_figure, places, thinned_rows
from katib.figures.trials import Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_OF_A_STATE = 700


class _Work(NamedTuple):
    """How far trials came.

    Attributes:
        done: Of each trial; NaN where it is not known or the trial is of no concern.
        title: Of the axis.
        word: What is saved: `steps`, or `time`.
        note: What a reader has to know of it.
    """

    done: Floats
    title: str
    word: str
    note: str = ""


def draw_stopping(data: ExperimentData, choice: Choice) -> go.Figure:
    """Return how far each trial came, stopped or complete, the usual length, and the share of the work that was saved.

    By steps, where the programs report them, of an even choice of 50 stopped and 50 complete trials.
    By time, of all trials.
    """
    trials = data.trials
    stopped, complete = trials.in_states("EarlyStopped"), trials.in_states("Succeeded")
    work = _work_by_step(data) if choice.by == "step" else None
    if work is None or not np.isfinite(work.done[stopped]).any():
        note = "the programs report no steps, so the time stands for them" if choice.by == "step" else ""
        work = _work_by_time(trials, note)
    figure = new_figure(title=f"{data.name}: early stopping", x="trial", y=work.title)
    figure.update_layout(yaxis={"rangemode": "tozero"})
    for state, mask in (("Succeeded", complete), ("EarlyStopped", stopped)):
        _add_state(figure, trials, work.done, places(mask & np.isfinite(work.done)), state)
    sentence = f"{int(stopped.sum()):,} of {len(trials):,} trials were stopped early"
    ends = work.done[complete & np.isfinite(work.done)]
    if len(ends):
        usual = float(np.median(ends))
        _add_usual(figure, usual, len(trials))
        sentence += f" and about {saved_work(work.done, stopped, complete):.0%} of the {work.word} saved"
    else:
        sentence += "; none has run to its end, so nobody knows what was saved"
    add_note(figure, sentence, work.note)
    return figure


def saved_work(done: Floats, stopped: npt.NDArray[np.bool_], complete: npt.NDArray[np.bool_]) -> float:
    """Return which share of all work was saved, if stopped trials would have come as far as half of the complete ones.

    Trials of which it is not known how far they came count as the others of their state on average.

    Args:
        done: How far each trial came.
        stopped: Which trials were stopped early.
        complete: Which trials ran to their end; one of them at least is known.
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
    """Return that no trial was stopped early, and whether one could be."""
    if data.trials.in_states("EarlyStopped").any():
        return ""
    if not data.experiment.get("spec", {}).get("earlyStopping"):
        return "The experiment has no early stopping."
    return "No trial has been stopped early yet."


def _work_by_step(data: ExperimentData) -> _Work | None:
    """Return the last step of each trial whose curve is known; None when none has steps."""
    done = np.full(len(data.trials), np.nan)
    last = {
        name: float(np.nanmax(curve.steps))
        for name, curve in data.curves.items()
        if curve.steps is not None and np.isfinite(curve.steps).any()
    }
    if not last:
        return None
    rows = rows_of(data.trials, last)
    for name, row in rows.items():
        done[row] = last[name]
    ended = int(data.trials.in_states("EarlyStopped", "Succeeded").sum())
    note = f"{len(rows):,} of {ended:,} trials drawn" if len(rows) < ended else ""
    return _Work(done, "last step", "steps", note)


def _work_by_time(trials: TrialTable, note: str) -> _Work:
    durations = np.maximum(trials.durations, 0.0)
    durations[~trials.in_states("EarlyStopped", "Succeeded")] = np.nan
    unit = time_unit(float(np.nanmax(durations)) if np.isfinite(durations).any() else 0.0)
    return _Work(durations / unit.seconds, f"{unit.name} run", "time", note)


def _add_state(figure: go.Figure, trials: TrialTable, done: Floats, rows: Rows, state: str) -> None:
    drawn = thinned_rows(done, rows, _MOST_OF_A_STATE)
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
            hovertemplate="%{customdata}<br>%{y:.4g}<extra>" + state + "</extra>",
        )


def _add_usual(figure: go.Figure, usual: float, trials: int) -> None:
    figure.add_scatter(
        x=[1, max(trials, 2)],
        y=[usual, usual],
        mode="lines",
        name="median of the complete ones",
        line={"color": BLUE, "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )
