"""Tuning from Python: a function in, the best parameters out.

Belongs here: what a script or a notebook calls, and the program that a trial of a function runs as.
Does not belong here: anything the YAML way does not have too; `tune` writes an Experiment and runs it.
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
"""Where a name is defined, for those that are not in `results`."""


def __getattr__(name: str) -> Any:
    """Import what is asked for: a trial's process needs neither an engine nor anything that one imports."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in {"plots", "search"}:
        return import_module(f"katib.sdk.{name}")
    module = import_module(f"katib.sdk.{_MODULES.get(name, 'results')}")
    return getattr(module, "open_experiment" if name == "open" else name)


def __dir__() -> list[str]:
    """Return what this package offers, whether it was imported already or not."""
    return sorted(__all__)
