"""Keras: reports the logs of `fit` at the end of an epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from keras.callbacks import Callback

from katib.callbacks.selection import report_chosen


class KerasCallback(Callback):
    """Reports the logs of every epoch, such as `loss` and `val_accuracy`; the step is the number of the epoch, from 0.

    Args:
        metrics: Names to report; None: all.
    """

    def __init__(self, metrics: Collection[str] | None = None) -> None:
        super().__init__()
        self._metrics = metrics

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report."""
        report_chosen(logs or {}, self._metrics, epoch)
