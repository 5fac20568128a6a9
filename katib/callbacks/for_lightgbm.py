"""LightGBM: reports the evaluations of each round. Its callbacks are functions, so it need not be imported."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from katib.callbacks.selection import report_chosen

_ORDER = 25
"""After callbacks that print or record (10, 20), before those that may stop training by an exception (30)."""


def lightgbm_callback(metrics: Collection[str] | None = None) -> Callable[[Any], None]:
    """Return a callback that reports every metric of every evaluation set as `SET-METRIC`, such as `valid_0-l2`.

    The step is the number of the round, from 0. For cross-validation it reports the means.

    Args:
        metrics: Names to report; None: all.
    """

    def callback(env: Any) -> None:
        values = {f"{data}-{metric}": value for data, metric, value, *_ in env.evaluation_result_list or ()}
        report_chosen(values, metrics, env.iteration)

    callback.order = _ORDER  # type: ignore[attr-defined]  # LightGBM reads this attribute
    return callback
