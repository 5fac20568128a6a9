"""The program of a trial of a function: `python -m katib.sdk.trial PAYLOAD name=value ...`."""

from __future__ import annotations

import numbers
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from traceback import format_exception
from typing import Any

from katib.sdk.payload import Payload, takes_mapping
from katib.sdk.reporting import has_reported, last_step, metric_texts, name_objective, report
from katib.sdk.user_main import as_main
from katib.service.drafting import same_here


def evaluate(payload: Payload, words: Sequence[str]) -> None:
    """Call the function with the assignments of one trial and report its result."""
    metrics = called(payload, payload.arguments(words))
    if metrics:
        report(metrics, step=last_step())  # the end of the curve, at any step
    if lacks := lacking(payload, metrics):  # its output may still hold the objective
        sys.stderr.write(f"{lacks}\n")


def file_here(file: Path) -> Path:
    """Return the file of a function in the data directory of this trial: it may be a copy, or have moved."""
    folders = Path(os.environ.get("KATIB_TRIAL_DIR", "")).parents
    return next((one for folder in folders if (one := folder / "functions" / file.name).exists()), file)


def lacking(payload: Payload, metrics: Mapping[str, float]) -> str:
    """Return a message that a function returned no value of an objective, with the remedy; empty if it did."""
    wanted = next((name for name in payload.objectives if name not in metrics and not has_reported(name)), "")
    if not wanted:
        return ""
    if not metrics:
        return "" if has_reported() else f"the function neither returned {wanted} nor called katib.report"
    remedy = f'pass objective="{next(iter(metrics))}"' if len(payload.objectives) == 1 else "return it as well"
    return f"the function returned {', '.join(metrics)} and no {wanted}; {remedy}"


def called(payload: Payload, arguments: Mapping[str, Any]) -> dict[str, float]:
    """Call the function, and return its metrics; empty if it reported itself.

    Raises:
        TypeError: It returned something else.
        AttributeError: It takes its mapping for a trial of another library.
    """
    name_objective(payload.objectives[0] if len(payload.objectives) == 1 else "")
    if takes_mapping(payload.function, arguments):
        result = _called_with_mapping(payload.function, dict(arguments))
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


def _called_with_mapping(function: Callable[[dict[str, Any]], Any], mapping: dict[str, Any]) -> Any:
    """Return the result of a function of one mapping; explain an error from another library's interface."""
    one = next(iter(mapping))
    cause = f"the function has no argument {one}, so it was called with one mapping of all"
    remedy = "name its arguments as the search space does"
    try:
        result = function(mapping)
    except AttributeError as error:
        name = error.name or ""
        same = f"[{name!r}]" if name in mapping else same_here("dict", name)
        if error.obj is not mapping or not same:
            raise
        raise AttributeError(f"{error}; use {same}") from error
    except TypeError as error:  # such as `lambda lr: lr / 2` in a search of x
        if "dict" not in str(error):
            raise
        raise TypeError(f"{error}; {cause}; {remedy}") from error
    if result is mapping:
        raise TypeError(f"{cause}, which it returned; {remedy}")
    return result


def lines_of(error: BaseException) -> str:
    """Return an error of a function as Python prints it, without our own stack frames."""
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_globals.get("__package__") == __package__:
        entry = entry.tb_next
    return "".join(format_exception(error.with_traceback(entry or error.__traceback__)))


if __name__ == "__main__":
    # Of a module that keeps its names when this one gets those of the function's.
    from katib.sdk.trial import evaluate, file_here, lines_of

    try:
        evaluate(as_main(file_here(Path(sys.argv[1]))), sys.argv[2:])
    except Exception as error:  # noqa: BLE001 - whatever the function raises fails its trial
        sys.stderr.write(lines_of(error))
        sys.exit(1)
