"""Tuning from Python: a function in, the best parameters out.

Belongs here: what a script or a notebook calls, and the program that a trial of a function runs as.
Does not belong here: anything the YAML way does not have too; `tune` writes an Experiment and runs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from katib.sdk import plots, search
    from katib.sdk.reporting import report
    from katib.sdk.tuning import TrialResult, TuneError, TuneResult, tune

__all__ = ["TrialResult", "TuneError", "TuneResult", "plots", "report", "search", "tune"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: a trial's process needs neither an engine nor anything that one imports."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in {"plots", "search"}:
        return import_module(f"katib.sdk.{name}")
    return getattr(import_module("katib.sdk.reporting" if name == "report" else "katib.sdk.tuning"), name)
