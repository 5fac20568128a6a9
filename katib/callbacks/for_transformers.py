"""Hugging Face Trainer: reports its logs of training and evaluation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from transformers import TrainerCallback

from katib.callbacks.selection import report_chosen


class TransformersCallback(TrainerCallback):
    """Reports every log entry, such as `loss` and `eval_accuracy`; the step is the global step.

    How often there is one say `logging_steps` and `eval_strategy` of the training arguments. Only the process with
    rank 0 of all machines reports.

    Args:
        metrics: Names to report; None: all.
    """

    def __init__(self, metrics: Collection[str] | None = None) -> None:
        super().__init__()
        self._metrics = metrics

    def on_log(
        self,
        args: Any,  # noqa: ARG002 - the signature is Trainer's
        state: Any,
        control: Any,  # noqa: ARG002 - as above
        logs: Mapping[str, Any] | None = None,
        **_kwargs: Any,
    ) -> None:
        """Report."""
        if state.is_world_process_zero:
            report_chosen(logs or {}, self._metrics, state.global_step)
