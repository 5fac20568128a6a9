"""Callbacks that report the metrics of training libraries: `katib.report` after every epoch, round or log entry.

    Trainer(callbacks=[katib.callbacks.LightningCallback()])
    model.fit(..., callbacks=[katib.callbacks.KerasCallback()])
    Trainer(..., callbacks=[katib.callbacks.TransformersCallback()])
    xgboost.train(..., callbacks=[katib.callbacks.XGBoostCallback()])
    lightgbm.train(..., callbacks=[katib.callbacks.lightgbm_callback()])

Each takes `metrics`, the names to report, as used by the library; without it all numbers are reported. A library is
imported when its callback is accessed.

Belongs here: conversion of a library's callback to one call of `katib.report`.
Does not belong here: sending of readings; anything that more than one library needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from katib.callbacks.for_keras import KerasCallback
    from katib.callbacks.for_lightgbm import lightgbm_callback
    from katib.callbacks.for_lightning import LightningCallback
    from katib.callbacks.for_transformers import TransformersCallback
    from katib.callbacks.for_xgboost import XGBoostCallback

__all__ = ["KerasCallback", "LightningCallback", "TransformersCallback", "XGBoostCallback", "lightgbm_callback"]

_MODULES = {
    "KerasCallback": "for_keras",
    "LightningCallback": "for_lightning",
    "TransformersCallback": "for_transformers",
    "XGBoostCallback": "for_xgboost",
    "lightgbm_callback": "for_lightgbm",
}


def __getattr__(name: str) -> Any:
    """Import the library of a callback on access."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"katib.callbacks.{_MODULES[name]}"), name)
