"""XGBoost: reports the evaluations of each round."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from xgboost import collective
from xgboost.callback import TrainingCallback

from katib.callbacks.selection import report_chosen


class XGBoostCallback(TrainingCallback):
    """Reports every metric of every evaluation set as `SET-METRIC`, such as `validation-rmse`.

    The step is the number of the round, from 0. For cross-validation it reports the means. Only the worker with rank 0
    reports.

    Args:
        metrics: Names to report; None: all.
    """

    def __init__(self, metrics: Collection[str] | None = None) -> None:
        super().__init__()
        self._metrics = metrics

    def after_iteration(
        self,
        model: Any,  # noqa: ARG002 - the signature is XGBoost's
        epoch: int,
        evals_log: Mapping[str, Mapping[str, Sequence[Any]]],
    ) -> bool:
        """Report; return False, so that training continues."""
        newest = {
            f"{data}-{metric}": values[-1] for data, metrics in evals_log.items() for metric, values in metrics.items()
        }
        if collective.get_rank() == 0:
            means = {name: value[0] if isinstance(value, tuple) else value for name, value in newest.items()}
            report_chosen(means, self._metrics, epoch)
        return False
