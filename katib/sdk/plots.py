"""Figures of experiments in a notebook: `katib.plots.history("my-experiment")`.

Each function returns a `plotly.graph_objects.Figure`, which notebooks show. An experiment is given by its name, or by a
result of `katib.tune`. Every function raises InvalidError if the figure cannot be drawn for these trials or the
experiment lacks a chosen part, NotFoundError if the experiment does not exist, UnavailableError if there is no server
and no data directory.

The functions are created from the catalogue of figures; `plots.pyi` declares them for editors and type checkers
(`make golden` writes it).
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from katib.figures.catalogue import COMPARISON, FIGURES, ComparisonKind, FigureKind
from katib.figures.data import FigureOptions
from katib.sdk.drawing import draw_comparison, draw_figure
from katib.sdk.homes import ExperimentPlace

if TYPE_CHECKING:
    import plotly.graph_objects as go

ARGUMENTS = {
    "parameters": ("Sequence[str]", (), "Axes to show, in this order; none: those that tell most."),
    "metric": ("str", "", "A metric in place of the objective."),
    "by": ('Literal["step", "time"]', "step", "What progress is counted in: steps (a comparison: trials) or time."),
    "objectives": ("Sequence[str]", (), "Axes, two or three; none: the first objectives."),
    "axes": (
        "Sequence[str]",
        (),
        "Horizontal axis, vertical axis and colour: parameters, metrics, `duration`, `trial`.",
    ),
    "group": ("str", "", "Means of groups in place of single curves: a parameter, or `tag`."),
}
"""Options of figures: type, default, and meaning."""
PLACE = {
    "data_dir": ("str | Path | None", None, "A data directory to read; by default where the command line looks."),
    "server": ("str | None", None, "The URL of a server to ask."),
    "namespace": ("str", "", "Of the experiment; by default the one that all experiments are in."),
}


class ResultPlots:
    """The figures of a result of `katib.tune`: `result.plot.history()`.

    Args:
        result: The result.
    """

    def __init__(self, result: Any) -> None:
        self.result = result


def _named(draw: Callable[..., go.Figure], kind: FigureKind | ComparisonKind, first: str, about: str) -> Any:
    """Give a function the name, the signature and the docstring of a figure."""
    options = {name: ARGUMENTS[name] for name in kind.chooses} | (PLACE if first != "self" else {})
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=type_)
        for name, (type_, default, _) in options.items()
    ]
    signature = Signature([Parameter(first, Parameter.POSITIONAL_OR_KEYWORD), *keywords])

    def figure(*args: Any, **kwargs: Any) -> go.Figure:
        bound = signature.bind(*args, **kwargs)
        place = ExperimentPlace(
            **{"namespace": ""} | {name: value for name, value in bound.kwargs.items() if name in PLACE}
        )
        chosen = {name: value for name, value in bound.kwargs.items() if name in ARGUMENTS}
        return draw(
            bound.args[0], FigureOptions(**{n: v if isinstance(v, str) else tuple(v) for n, v in chosen.items()}), place
        )

    lines = [f"    {name}: {text}" for name, text in [(first, about), *((n, o[2]) for n, o in options.items())] if text]
    figure.__doc__ = "\n".join([f'Return the figure "{kind.title}".', "", kind.tells, "", "Args:", *lines])
    figure.__name__ = figure.__qualname__ = kind.name
    figure.__signature__ = signature  # type: ignore[attr-defined] # what `help` and editors read
    return figure


def _single(name: str) -> Callable[..., go.Figure]:
    return lambda experiment, choice, place: draw_figure(name, experiment, choice, place)


for _kind in FIGURES:
    _draw = _single(_kind.name)
    globals()[_kind.name] = _named(_draw, _kind, "experiment", "Name of an experiment, or a result.")
    _of_result = _named(lambda plots, choice, place, draw=_draw: draw(plots.result, choice, place), _kind, "self", "")
    setattr(ResultPlots, _kind.name, _of_result)
comparison = _named(draw_comparison, COMPARISON, "experiments", "Names of experiments, or results.")

__all__ = ["ResultPlots"]
__all__ += [kind.name for kind in (*FIGURES, COMPARISON)]
