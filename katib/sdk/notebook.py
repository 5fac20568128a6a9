"""Display of a run and its result in a notebook: a progress bar, a small table, the history.

A bar is a widget if `ipywidgets` is installed, else HTML that is replaced in place: nothing needs to be installed.
IPython is not imported here: it runs a notebook, so it is loaded already.
"""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Self

from katib.service.explaining.lines import header, moment_line
from katib.service.explaining.progress import (
    BestChanged,
    ExperimentHeldUp,
    IdenticalFailures,
    Moment,
    RunProgress,
    TrialEnded,
)
from katib.service.tuning.states import state_of

_EVERY_SECONDS = 0.1
"""Minimum pause between updates: trials that do nothing end faster than a browser draws."""

_WIDTH, _HEIGHT, _LEFT, _PAD = 520, 150, 70, 10
"""Size of the history, in pixels."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class ProgressBar:
    """Shows a run as one bar with the best value so far, and the newest message to the user.

    Args:
        progress: The run.
    """

    def __init__(self, progress: RunProgress) -> None:
        self._progress = progress
        self._news = ""
        self._best = ""
        self._update: Callable[[str], None] | None = None
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        self._update = _shown(self._html())
        return self

    def __exit__(self, *_: object) -> None:
        self._show(last=True)

    def tell(self, moment: Moment) -> None:
        """Show one moment."""
        if isinstance(moment, BestChanged):
            self._best = moment_line(moment, self._progress)
        failed = isinstance(moment, TrialEnded) and state_of(moment.trial) == "Failed"
        if failed or isinstance(moment, IdenticalFailures | ExperimentHeldUp):
            self._news = moment_line(moment, self._progress)
        self._show()

    def tick(self) -> None:
        """Update the progress."""
        self._show()

    def _show(self, *, last: bool = False) -> None:
        now = time.monotonic()
        if self._update is not None and (last or now - self._shown_at >= _EVERY_SECONDS):
            self._shown_at = now
            self._update(self._html())

    def _html(self) -> str:
        done, limit = self._progress.done, self._progress.limit
        size = f' value="{done}" max="{limit}"' if limit else ""
        count = f"{done} of {limit} trials" if limit else f"{done} trials"
        parts = [f"<div>{html.escape(header(self._progress.experiment))}</div>"]
        parts.append(f'<div><progress{size} style="width:18em;vertical-align:middle"></progress> {count}')
        parts[-1] += f" · {html.escape(self._best)}</div>" if self._best else "</div>"
        parts += [f'<div style="opacity:.75">{html.escape(self._news)}</div>'] if self._news else []
        return f'<div style="font-variant-numeric:tabular-nums">{"".join(parts)}</div>'


def _shown(text: str) -> Callable[[str], None]:
    """Display HTML and return a function that replaces it."""
    display = sys.modules["IPython"].display
    try:
        import ipywidgets
    except ImportError:
        handle = display.display(display.HTML(text), display_id=True)
        return lambda newer: handle.update(display.HTML(newer))
    widget = ipywidgets.HTML(text)
    display.display(widget)

    def update(newer: str) -> None:
        widget.value = newer

    return update


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """Return a small table as HTML; its first row is the best."""

    def row(cells: Sequence[str], tag: str) -> str:
        shown = (f'<{tag} style="text-align:left">{html.escape(cell)}</{tag}>' for cell in cells)
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return (
        f'<table><caption style="caption-side:top;text-align:left">{html.escape(caption)}</caption>'
        f"<thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table>"
    )


def history(values: Sequence[float | None], *, maximize: bool) -> str:
    """Return the history of an objective as a small picture: the trials in order, and the best value so far as a line.

    It is plain SVG, which every notebook shows without scripts, even in a copied file.

    Args:
        values: One for each trial, oldest first; None and non-finite ones are left out.
        maximize: Whether larger is better.
    """
    points = [(i, value) for i, value in enumerate(values, 1) if value is not None and math.isfinite(value)]
    if len(points) < 2:  # noqa: PLR2004 - one point is in the table
        return ""
    low, high = min(value for _, value in points), max(value for _, value in points)
    last = len(values)

    def at(index: int, value: float) -> tuple[float, float]:
        x = _LEFT + (index - 1) / max(last - 1, 1) * (_WIDTH - _LEFT - _PAD)
        return x, _PAD + (high - value) / ((high - low) or 1.0) * (_HEIGHT - 3 * _PAD)

    better = max if maximize else min
    best, path = points[0][1], []
    for index, value in points:
        x, before = at(index, best)
        best = better(best, value)
        path.append(f"{x:.1f},{before:.1f} {x:.1f},{at(index, best)[1]:.1f}")
    path.append("{:.1f},{:.1f}".format(*at(last, best)))
    dots = "".join('<circle cx="{:.1f}" cy="{:.1f}" r="2.5"/>'.format(*at(*point)) for point in points)
    return (
        f'<svg role="img" aria-label="History: best so far {best:.6g}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="11" fill="currentColor">'
        f'<g fill="#4c78a8" opacity=".6">{dots}</g>'
        f'<polyline points="{" ".join(path)}" fill="none" stroke="#e4572e" stroke-width="1.5"/>'
        f'<text x="{_LEFT - 6}" y="{_PAD + 4}" text-anchor="end">{high:.4g}</text>'
        f'<text x="{_LEFT - 6}" y="{_HEIGHT - 2 * _PAD + 4}" text-anchor="end">{low:.4g}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 2}">1</text>'
        f'<text x="{_WIDTH - _PAD}" y="{_HEIGHT - 2}" text-anchor="end">trial {last}</text></svg>'
    )
