"""PyTorch Lightning: reports the values that modules logged, at the end of an epoch."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any, Literal

from katib.callbacks.selection import report_chosen

# Lightning is published under two names, whose classes are not the same; a program uses one of them.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback


class LightningCallback(Callback):
    """Reports the values logged for callbacks, such as `val_loss`, after every epoch and its validation.

    Only the process with global rank 0 reports.

    Args:
        metrics: Names to report; None: all.
        step: The unit of steps: the `epoch`, from 0, or the `global_step`, the number of optimizer steps.
    """

    def __init__(
        self, metrics: Collection[str] | None = None, *, step: Literal["epoch", "global_step"] = "epoch"
    ) -> None:
        super().__init__()
        self._metrics = metrics
        self._step = step

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - the signature is Lightning's
        """Report."""
        if trainer.is_global_zero:
            step = trainer.current_epoch if self._step == "epoch" else trainer.global_step
            report_chosen(trainer.callback_metrics, self._metrics, step)
