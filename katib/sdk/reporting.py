"""Functions for a trial's program: reporting metrics, and its checkpoint folder.

Imports almost nothing: every training program pays for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex

if TYPE_CHECKING:
    from pathlib import Path

    from katib.sdk.pushing import Sender

TRIAL_VARIABLE = "KATIB_TRIAL_NAME"
ADDRESS_VARIABLE = "KATIB_DB_MANAGER_ADDRESS"
_CHECKPOINT_VARIABLE = "KATIB_CHECKPOINT_DIR"  # `katib.model.checkpoints`, whose module takes long to import

_LARGEST_STEP = 2**63 - 1
_LONGEST_NAME = 255
_known_names: set[str] = set()
_last_step: int | None = None
Receiver = Callable[[Mapping[str, float], int | None], None]
"""Receives values by name, and their step."""
_receiver: Receiver | None = None
_objective = ""
"""The metric of a reading without a name, if known."""


def report(
    metrics: SupportsFloat | Mapping[str, SupportsFloat] | None = None,
    /,
    step: SupportsIndex | None = None,
    **named: SupportsFloat,
) -> None:
    """Report readings of metrics, such as once per epoch: `report(accuracy=0.91, loss=0.3, step=4)`.

    In a trial that pushes its metrics they are sent by a process beside the program, for which the program's end waits.
    In a job of a Hydra sweep they go to the sweeping program; `katib.StopTrial` is raised when the job should end.
    Elsewhere they are printed in the collector's format, so a function that calls this also runs outside of a trial. It
    may be called from any thread, and from processes that the program starts.

    Args:
        metrics: Readings by name, for names that are not valid in Python, such as `{"val/loss": 0.3}`; in a function of
            `katib.tune` with one objective also a reading of that: `report(0.3, 4)`.
        step: The training step, such as an epoch: an integer from 0.
        **named: Further readings by name. A value is a number or an argument of `float()`, such as a NumPy scalar or a
            tensor of one element. NaN and infinities are kept, but are never the best.

    Raises:
        TypeError: A value, a name or the step is invalid. Nothing of this call is reported then.
    """
    readings = metric_texts(named if metrics is None else {**_by_name(metrics, step), **named})
    number = None if step is None else step_number(step)
    if not readings:
        return
    if number is not None:
        global _last_step  # noqa: PLW0603 - of this process
        _last_step = number
    if _receiver is not None:
        _receiver({name: float(text) for name, text in readings}, number)
        return
    sender = _sender()
    if sender is not None:
        sender.send(readings, number)
    else:
        _print(readings, number)


def checkpoint_dir() -> Path | None:
    """Return the checkpoint folder of this trial; None if it has none, such as outside of a trial.

    It is empty when the trial starts, and unchanged when the trial continues; with an algorithm that passes checkpoints
    on, a trial starts with a copy of another one's.
    """
    from pathlib import Path

    folder = os.environ.get(_CHECKPOINT_VARIABLE)
    return Path(folder) if folder else None


def last_step() -> int | None:
    """Return the last step that this process reported; None if it reported none."""
    return _last_step


def has_reported(name: str = "") -> bool:
    """Whether this process has reported a metric, or anything."""
    return name in _known_names if name else bool(_known_names)


def name_objective(name: str) -> None:
    """Set the metric of `report(0.3)`; empty: none."""
    global _objective  # noqa: PLW0603 - of this process
    _objective = name


def have_received_by(receiver: Receiver | None) -> None:
    """Set a receiver of this process's reports, instead of sending or printing them; None: remove it."""
    global _receiver  # noqa: PLW0603 - of this process
    _receiver = receiver


def _print(readings: Sequence[tuple[str, str]], step: int | None) -> None:
    # `katib.model.metrics.STEP_MARK`, whose module takes long to import.
    words = [] if step is None else [f"katib-step={step}"]
    sys.stdout.write(" ".join(words + [f"{name}={text}" for name, text in readings]) + "\n")
    sys.stdout.flush()


def _sender() -> Sender | None:
    """Return the sender of this trial's readings; None if they are printed."""
    if not (os.environ.get(ADDRESS_VARIABLE) and os.environ.get(TRIAL_VARIABLE)):
        return None
    from katib.sdk.pushing import sender

    return sender()


# --- what may be reported ---------------------------------------------------------------------------------------------


def metric_texts(metrics: Mapping[str, SupportsFloat]) -> list[tuple[str, str]]:
    """Return names and values as text.

    Raises:
        TypeError: Some of them cannot be reported; the message names all of these.
    """
    try:
        texts = [(name, float.__repr__(float(value))) for name, value in metrics.items()]
    except Exception as error:
        if problems := list(filter(None, map(_value_problem, metrics, metrics.values()))):
            raise TypeError("; ".join(problems)) from error
        texts = [(name, float.__repr__(_number(value))) for name, value in metrics.items()]
    if not _known_names.issuperset(metrics):
        if problems := [problem for name in metrics if (problem := _name_problem(name))]:
            raise TypeError("; ".join(problems))
        _known_names.update(metrics)
    return texts


def _by_name(metrics: object, step: object) -> Mapping[str, SupportsFloat]:
    """Return readings by name. Raises TypeError for one without a name, with the correct call."""
    if isinstance(metrics, Mapping):
        return metrics
    if _objective and not isinstance(metrics, str):
        return {_objective: metrics}  # type: ignore[dict-item]  # what is not a number is refused with its name
    if isinstance(metrics, str):
        call = f"report({metrics}={'0.3' if step is None else repr(step)})"
    else:
        call = f"report(loss={metrics!r})" if step is None else f"report(loss={metrics!r}, step={step!r})"
    raise TypeError(f"{metrics!r} has no name; write {call}")


def _number(value: Any) -> float:
    """Convert a value to a number; `float` no longer accepts NumPy arrays of one element."""
    try:
        return float(value)
    except TypeError:
        return float(value.item())


def _value_problem(name: object, value: object) -> str:
    try:
        _number(value)
    except Exception:  # noqa: BLE001 - a foreign type fails with whatever it likes
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."  # noqa: PLR2004 - a line stays readable
        return f"{name}: {type(value).__name__} {shown} is not one number; report a number or a tensor of one element"
    return ""


def _name_problem(name: object) -> str:
    if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and "=" not in name:
        return ""
    return f"{name!r} cannot name a metric; use 1 to {_LONGEST_NAME} printable characters without ="


def step_number(step: SupportsIndex) -> int:
    """Convert a step to a number.

    Raises:
        TypeError: It is not an integer from 0.
    """
    try:
        number = step.__index__()
    except AttributeError:
        number = -1
    except Exception as error:
        raise _step_error(step) from error
    if not 0 <= number <= _LARGEST_STEP:
        raise _step_error(step)
    return number


def _step_error(step: object) -> TypeError:
    return TypeError(f"step: {step!r} is not a whole number from 0; report the epoch or the number of the batch")
