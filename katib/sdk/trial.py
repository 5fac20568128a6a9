"""The program of a trial of a function: `python -m katib.sdk.trial PAYLOAD name=value ...`."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from katib.sdk.payload import Payload, takes_mapping
from katib.sdk.reporting import has_reported, last_step, metric_texts, name_objective, report
from katib.tuning.foreign_words import same_here


def main(argv: list[str]) -> None:
    """Call the function with the assignments of one trial and report what it returns."""
    payload = Payload.load(Path(argv[0]))
    metrics = called(payload, payload.arguments(argv[1:]))
    if metrics:
        report(metrics, step=last_step())  # the end of a curve, wherever that stands
    if lacks := lacking(payload, metrics):  # what it printed may still hold the objective
        sys.stderr.write(f"{lacks}\n")


def lacking(payload: Payload, metrics: Mapping[str, float]) -> str:
    """Return that a function brought no value of an objective, and what to do; empty where it did."""
    wanted = next((name for name in payload.objectives if name not in metrics and not has_reported(name)), "")
    if not wanted:
        return ""
    if not metrics:
        return "" if has_reported() else f"the function neither returned {wanted} nor called katib.report"
    remedy = f'pass objective="{next(iter(metrics))}"' if len(payload.objectives) == 1 else "return it as well"
    return f"the function returned {', '.join(metrics)} and no {wanted}; {remedy}"


def called(payload: Payload, arguments: Mapping[str, Any]) -> dict[str, float]:
    """Call the function, and return its metrics; none where it reported itself.

    Raises:
        TypeError: It returned something else.
        AttributeError: It takes its mapping for a trial of another library.
    """
    name_objective(payload.objectives[0] if len(payload.objectives) == 1 else "")
    if takes_mapping(payload.function, arguments):
        mapping = dict(arguments)
        try:
            result = payload.function(mapping)
        except AttributeError as error:
            name = error.name or ""
            remedy = f"[{name!r}]" if name in mapping else same_here("dict", name)
            if error.obj is not mapping or not remedy:
                raise
            raise AttributeError(f"{error}; use {remedy}") from error
        if result is mapping:  # such as `lambda lr: lr` in a search of x
            cause = f"the function has no argument {next(iter(mapping))}, so it was called with one mapping of all"
            raise TypeError(f"{cause}, which it returned; name its arguments as the search space does")
    else:
        result = payload.function(**arguments)
    # A result is a number, several for several objectives, a mapping, or nothing when the function reported itself.
    if result is None:
        return {}
    names = payload.objectives
    if isinstance(result, tuple | list) and len(result) == len(names) > 1:
        result = dict(zip(names, result, strict=True))
    if not isinstance(result, Mapping):
        if not (isinstance(result, numbers.Real) or hasattr(result, "__float__")):
            wanted = "a number" if len(names) == 1 else f"a tuple of {' and '.join(names)}"
            several = isinstance(result, tuple | list) and len(names) == 1
            more = '; for several objectives pass objectives={"loss": "minimize", ...}' if several else ""
            kind = type(result).__name__
            raise TypeError(f"the function returned {kind}; return {wanted}, a mapping of metrics, or None{more}")
        result = {names[0]: result}
    return {name: float(text) for name, text in metric_texts({str(name): one for name, one in result.items()})}


if __name__ == "__main__":
    main(sys.argv[1:])
