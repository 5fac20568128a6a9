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

from typing import TYPE_CHECKING

from katib.model.loadable import lazy_names

if TYPE_CHECKING:
    from katib.callbacks.for_keras import KerasCallback
    from katib.callbacks.for_lightgbm import lightgbm_callback
    from katib.callbacks.for_lightning import LightningCallback
    from katib.callbacks.for_transformers import TransformersCallback
    from katib.callbacks.for_xgboost import XGBoostCallback

__all__ = ["KerasCallback", "LightningCallback", "TransformersCallback", "XGBoostCallback", "lightgbm_callback"]

if not TYPE_CHECKING:  # which knows all names
    __getattr__ = lazy_names(
        __name__,
        {
            "for_keras": "KerasCallback",
            "for_lightgbm": "lightgbm_callback",
            "for_lightning": "LightningCallback",
            "for_transformers": "TransformersCallback",
            "for_xgboost": "XGBoostCallback",
        },
    )
