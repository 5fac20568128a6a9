"""Write katib/sdk/plots.py, which has a function and a method for each figure of the catalogue.

    python -m tools.plot_functions           write it
    python -m tools.plot_functions --check   only say whether it is up to date

They are written out so that editors complete them and show what each figure tells.
"""

from __future__ import annotations

import builtins
import sys
import textwrap
from pathlib import Path

from katib.figures.catalogue import COMPARISON, FIGURES, ComparisonKind, FigureKind

MODULE = Path(__file__).parents[1] / "katib" / "sdk" / "plots.py"

_HEAD = '''"""Figures of experiments in a notebook: `katib.plots.history("my-experiment")`.

Each function returns a `plotly.graph_objects.Figure`, which notebooks show. An experiment is given by its name, or by
what `katib.tune` returned. Every function raises InvalidError when the figure cannot be drawn of these trials or the
experiment does not have what was chosen, NotFoundError when there is no such experiment, UnavailableError when nobody
can be asked.

Written by tools/plot_functions.py from the catalogue of figures: change that, and run `python -m tools.plot_functions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from katib.figures.data import Choice
from katib.sdk.drawing import Place, draw_comparison, draw_figure
from katib.tuning.service import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from katib.sdk.tuning import TuneResult

'''
_CLASS = '''

@dataclass(frozen=True, slots=True)
class ResultPlots:
    """The figures of what `katib.tune` found: `result.plot.history()`.

    Args:
        result: What was returned.
    """

    result: TuneResult
'''
_ARGUMENTS = {
    "parameters": ("Sequence[str] = ()", "Axes to show, in this order; none: those that tell most."),
    "metric": ('str = ""', "A metric in place of the objective."),
    "by": ('Literal["step", "time"] = "step"', "What progress is counted in: steps (a comparison: trials) or time."),
    "objectives": ("Sequence[str] = ()", "Axes, two or three; none: the first objectives."),
}
_PLACE = {
    "data_dir": ("str | Path | None = None", "A data directory to read."),
    "server": ("str | None = None", "The URL of a server to ask."),
    "namespace": ("str = DEFAULT_NAMESPACE", "Of the experiment."),
}
_FOUND = "Without server and data_dir the experiment is looked for where the command line looks."


def source() -> str:
    """Return the text of the module."""
    functions = [_function(kind) for kind in (*FIGURES, COMPARISON)]
    names = sorted(["ResultPlots", *(kind.name for kind in (*FIGURES, COMPARISON))])
    exports = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"
    return _HEAD + exports + "\n\n" + "\n\n".join(functions) + _CLASS + "".join(map(_method, FIGURES))


def _function(kind: FigureKind | ComparisonKind) -> str:
    several = isinstance(kind, ComparisonKind)
    subject = "experiments" if several else "experiment"
    type_ = "Sequence[str | TuneResult]" if several else "str | TuneResult"
    about = "Names of experiments, or results." if several else "Name of an experiment, or a result."
    chosen = {name: _ARGUMENTS[name] for name in kind.chooses}
    described = {subject: about, **{name: text for name, (_, text) in {**chosen, **_PLACE}.items()}}
    arguments = [
        f"    {subject}: {type_},",
        "    *,",
        *(f"    {name}: {kind_}," for name, (kind_, _) in {**chosen, **_PLACE}.items()),
    ]
    place = "Place(data_dir, server, namespace)"
    call = (
        f"draw_comparison({subject}, choice, {place})"
        if several
        else f'draw_figure("{kind.name}", {subject}, choice, {place})'
    )
    noqa = "  # noqa: A001 - the name of the figure" if hasattr(builtins, kind.name) else ""
    lines = [
        f"def {kind.name}({noqa}",
        *arguments,
        ") -> go.Figure:",
        _docstring(kind, described, _FOUND, indent="    "),
        f"    choice = {_choice(kind)}",
        f"    return {call}",
    ]
    return "\n".join(lines) + "\n"


def _method(kind: FigureKind) -> str:
    chosen = {name: _ARGUMENTS[name] for name in kind.chooses}
    described = {name: text for name, (_, text) in chosen.items()}
    arguments = ["*", *(f"{name}: {type_}" for name, (type_, _) in chosen.items())] if chosen else []
    lines = [
        "",
        f"    def {kind.name}(",
        "        self,",
        *(f"        {argument}," for argument in arguments),
        "    ) -> go.Figure:",
        _docstring(kind, described, "", indent=" " * 8),
        f"        choice = {_choice(kind)}",
        f'        return draw_figure("{kind.name}", self.result, choice, Place())',
    ]
    return "\n".join(lines) + "\n"


def _choice(kind: FigureKind | ComparisonKind) -> str:
    sequences = ("parameters", "objectives")
    fields = (f"{name}={f'tuple({name})' if name in sequences else name}" for name in kind.chooses)
    return f"Choice({', '.join(fields)})"


def _docstring(kind: FigureKind | ComparisonKind, arguments: dict[str, str], more: str, *, indent: str) -> str:
    width = 119 - len(indent)
    parts = [f'"""Return the figure "{kind.title}".', "", *textwrap.wrap(kind.tells, width)]
    if more:
        parts += ["", *textwrap.wrap(more, width)]
    if arguments:
        parts += ["", "Args:", *(f"    {name}: {text}" for name, text in arguments.items())]
    return "\n".join(f"{indent}{line}".rstrip() for line in [*parts, '"""'])


def main() -> int:
    """Write or check the module."""
    text = source()
    if MODULE.is_file() and MODULE.read_text() == text:
        return 0
    if "--check" in sys.argv:
        print(f"{MODULE.name} is out of date: run python -m tools.plot_functions", file=sys.stderr)
        return 1
    MODULE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
