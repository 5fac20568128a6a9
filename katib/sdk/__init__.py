"""Tuning from Python: a function in, the best parameters out.

Belongs here: what a script or a notebook calls, and the program that a trial of a function runs as.
Does not belong here: anything the YAML way does not have too; `tune` writes an Experiment and runs it.
"""

from __future__ import annotations

from katib.sdk import search
from katib.sdk.report import report
from katib.sdk.tune import TrialResult, TuneError, TuneResult, tune

__all__ = ["TrialResult", "TuneError", "TuneResult", "report", "search", "tune"]
