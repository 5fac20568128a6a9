"""Annotations of budgets, and the resources that trials hold."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final

from katib.model.features.feature import Annotation

HOURS: Final = "hours"
"""Unit of time: the hours during which at least one trial ran."""

MONEY: Final = "$"
"""Unit of money, whatever the currency of the prices."""

CUT_REASON = "TrialBudgetSpent"
"""Reason of EarlyStopped, or of Killed without readings, if the budget ended the trial."""

TRIAL: Final = "trial"
"""The resource of which every trial has one."""

RESOURCES: Final = ("gpu", "cpu", TRIAL)

_NUMBER = r"(\d+(?:\.\d+)?)"

_PAIR = re.compile(rf"({'|'.join(RESOURCES)})\s*=\s*{_NUMBER}")


def amounts_text(amounts: Mapping[str, float]) -> str:
    """Return amounts of resources as text, such as `cpu=2, gpu=1`."""
    return ", ".join(f"{name}={amount:.12g}" for name, amount in sorted(amounts.items()))


@functools.lru_cache(maxsize=256)
def read_amounts(text: str) -> Mapping[str, float]:
    """Return amounts of resources; malformed ones are left out."""
    pairs = (match for part in text.split(",") if (match := _PAIR.fullmatch(part.strip())))
    return {match[1]: float(match[2]) for match in pairs}


LIMITS: Final = Annotation("katib.kubeflow.org/budget", str, may_change=True)
"""On an Experiment: its limits, such as `8h, 20 gpu-hours, $50`."""

PRICES: Final = Annotation("katib.kubeflow.org/prices", str, may_change=True)
"""On the same: the hourly price of each resource, such as `gpu=2.50, cpu=0.04`."""

SPENT: Final = Annotation("katib.kubeflow.org/spent", read_amounts, amounts_text)
"""On the same: seconds for which removed trials held each resource, such as `cpu=90, trial=45`."""

HOLDS: Final = Annotation("katib.kubeflow.org/holds", read_amounts, amounts_text)
"""On a trial of such an experiment: amount of each resource that it holds while it runs, such as `cpu=2, gpu=1`."""
