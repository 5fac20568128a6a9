"""Tuning from Python: a function in, the best parameters out.

Belongs here: the functions for scripts and notebooks, and the program of a trial of a function.
Does not belong here: features that experiment files lack; `tune` writes an Experiment and runs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from katib.sdk import plots, search
    from katib.sdk.asking import AskedTrial, Experiment, StopTrial
    from katib.sdk.creating import create
    from katib.sdk.opening import open_experiment as open  # noqa: A004 - as webbrowser.open
    from katib.sdk.reporting import checkpoint_dir, report
    from katib.sdk.results import TrialResult, TuneError, TuneResult
    from katib.sdk.tuning import tune

__all__ = [
    "AskedTrial",
    "Experiment",
    "StopTrial",
    "TrialResult",
    "TuneError",
    "TuneResult",
    "checkpoint_dir",
    "create",
    "open",
    "plots",
    "report",
    "search",
    "tune",
]

_MODULES = {
    "AskedTrial": "asking",
    "Experiment": "asking",
    "StopTrial": "asking",
    "checkpoint_dir": "reporting",
    "create": "creating",
    "open": "opening",
    "report": "reporting",
    "tune": "tuning",
}
"""Module of each name that is not in `results`."""


def __getattr__(name: str) -> Any:
    """Import a name on access: a trial's process needs neither an engine nor its imports."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in {"plots", "search"}:
        return import_module(f"katib.sdk.{name}")
    module = import_module(f"katib.sdk.{_MODULES.get(name, 'results')}")
    return getattr(module, "open_experiment" if name == "open" else name)


def __dir__() -> list[str]:
    """Return the names of this package, whether imported or not."""
    return sorted(__all__)
