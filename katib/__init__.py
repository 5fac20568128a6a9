"""Hyperparameter tuning with Katib's API, on one machine.

From Python: `katib.tune(function, {"lr": katib.search.double(1e-4, 1e-1, log=True)})`.

To read the code, start at `katib.places.machine.engine`, which wires the whole service for one machine, then at
`katib.engine.controllers.experiment.reconciler`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from katib.model.version import __version__

if TYPE_CHECKING:
    from katib import callbacks
    from katib.sdk import (
        Experiment,
        StopTrial,
        TuneError,
        TuneResult,
        checkpoint_dir,
        create,
        open,  # noqa: A004 - as webbrowser.open
        plots,
        report,
        search,
        tune,
    )

__all__ = [
    "Experiment",
    "StopTrial",
    "TuneError",
    "TuneResult",
    "__version__",
    "callbacks",
    "checkpoint_dir",
    "create",
    "open",
    "plots",
    "report",
    "search",
    "tune",
]


if not TYPE_CHECKING:  # which knows all names

    def __getattr__(name: str) -> Any:
        """Import the SDK when it is asked for, so that services and the command line start without it."""
        if name == "callbacks":
            return import_module("katib.callbacks")
        if name in __all__:
            return getattr(import_module("katib.sdk"), name)
        from katib.service.drafting import missing_attribute

        raise missing_attribute(__name__, name, [one for one in __all__ if not one.startswith("_")])


def __dir__() -> list[str]:
    """Return the Python API, which is imported when it is used."""
    return sorted(__all__)
