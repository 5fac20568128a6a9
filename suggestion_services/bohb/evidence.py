"""Estimates of configurations at one amount of a resource from trials at other amounts.

Notation: a configuration is the values of all parameters but the resource; its trials have amounts a, and b is the
amount that the model learns from.
Differs from [Falkner2018], whose model uses the trials at b alone. Those are the survivors of the rungs below: without
the many configurations that ended there, a model sees nothing bad in most of the space and prefers unexplored regions.
So a configuration without a trial at b counts with its value at another amount, shifted by the median change of the
values of configurations with both amounts. Survivors are the lucky ones of their rung, so this rather underestimates
the others, which is the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import median

from suggestion_services.base.algorithm import PastTrial, TrialOutcome

_LEAST_PAIRS = 2
_MOST_PAIRS = 200  # suffice; the newest of them
_REVERSED = 2.0  # deviations: survivors are alike, so noise often reverses some of their order

Configuration = frozenset[tuple[str, str]]
ByConfiguration = Mapping[Configuration, PastTrial]


def evidence_at(amount: float, by_amount: Mapping[float, Sequence[PastTrial]], resource: str) -> list[PastTrial]:
    """Return a trial for each configuration, with its measured or estimated value at an amount.

    Args:
        amount: b.
        by_amount: Trials that ended with a value or failed, by their amounts, which include b.
    """
    known = {at: {configuration_of(trial, resource): trial for trial in trials} for at, trials in by_amount.items()}
    found = dict(known[amount])
    for at in sorted(known, reverse=True):  # of several amounts, the largest is the most informative
        move = _move(known[at], known[amount])
        if move is not None:
            for key, trial in known[at].items():
                moved = (
                    trial
                    if trial.outcome is not TrialOutcome.MEASURED
                    else replace(trial, objective=trial.objective + move)
                )
                found.setdefault(key, moved)
    return list(found.values())


def configuration_of(trial: PastTrial, resource: str) -> Configuration:
    """Return the values of all parameters but the resource."""
    return frozenset(pair for pair in trial.assignments.items() if pair[0] != resource)


def _move(low: ByConfiguration, high: ByConfiguration) -> float | None:
    """Return the shift of values between two amounts; None if they are uncorrelated."""
    pairs = [
        (trial.objective, high[key].objective)
        for key, trial in low.items()
        if trial.outcome is TrialOutcome.MEASURED and key in high and high[key].outcome is TrialOutcome.MEASURED
    ]
    if len(pairs) < _LEAST_PAIRS:
        return None
    pairs = pairs[-_MOST_PAIRS:]
    products = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in combinations(pairs, 2)]
    agreement = sum((product > 0) - (product < 0) for product in products)
    n = len(pairs)
    if agreement < -_REVERSED * math.sqrt(n * (n - 1) * (2 * n + 5) / 18):  # the deviation of Kendall's S by chance
        return None
    return median(after - before for before, after in pairs)
