"""The acquisition's term for priors of the user, and the design that begins with them.

Notation: q_j(u) the density of the belief about parameter j, see `katib.model.space.priors`; t_j the trust in it, n the
number of known trials.
Source: [Hvarfner2022] piBO: Augmenting Acquisition Functions with User Beliefs for Bayesian Optimization, ICLR: the
acquisition value is multiplied by the density to the power of beta / n, so that beliefs fade as trials come in.
Differs from the paper: the power has the factor t_j, which fades a belief that the best trials contradict, and does not
fall below a least one while they support all beliefs; otherwise every other suggestion ignores the beliefs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from katib.model.space.priors import UNIFORM_SHARE, Prior
from suggestion_services.base.priors import PriorGuide
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.optimize import FloatArray

_BETA = 15.0
"""In the paper a tenth of the budget, 10 at most."""


@dataclass(frozen=True)
class BeliefTerm:
    """The log of the priors' density to its power: 0 where they say nothing.

    Attributes:
        encoding: Of the space.
        powers: Each prior with its power.
    """

    encoding: Encoding
    powers: tuple[tuple[Prior, float], ...]

    @classmethod
    def of(cls, encoding: Encoding, guide: PriorGuide, n: int) -> BeliefTerm:
        """Return the term after n known trials."""
        return cls(encoding, tuple((prior, guide.power(name, n, _BETA)) for name, prior in guide.priors.items()))

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the logs (q,) at columns (q, c), and their gradients (q, c)."""
        rows = self.encoding.rows(x)
        absent = self.encoding.absent(rows)
        total, slopes = np.zeros(len(x)), np.zeros_like(x)
        for prior, power in self.powers:
            i = self.encoding.place(prior.parameter)
            present = ~absent[:, i]
            if prior.shares:
                shares = np.array(prior.shares)
                q = (1 - UNIFORM_SHARE) * len(shares) * shares[rows[:, i].astype(int)] + UNIFORM_SHARE
                total += present * power * np.log(q)
                continue
            low, high = self.encoding.edges(i)
            z = (low + rows[:, i] * (high - low) - prior.mean) / prior.deviation
            own = (1 - UNIFORM_SHARE) * prior.peak * np.exp(-0.5 * z * z)
            total += present * power * np.log(own + UNIFORM_SHARE)
            slope = own / (own + UNIFORM_SHARE) * z * (low - high) / prior.deviation
            slopes[:, i] = present * power * slope
        return total, slopes


def believed_row(row: FloatArray, unit: FloatArray, encoding: Encoding, guide: PriorGuide) -> FloatArray:
    """Return a row (d,) of the design, moved to where its parameters are believed to be best.

    Args:
        row: The row.
        unit: Its position (d,) in the unit cube; the middle becomes the median of a belief, strata remain strata.
        encoding: Of the space.
        guide: The priors.
    """
    moved = row.copy()
    for name, prior in guide.priors.items():
        i = encoding.place(name)
        u = prior.quantile(float(unit[i]))
        if prior.shares:
            moved[i] = min(int(u * len(prior.shares)), len(prior.shares) - 1)
        else:
            low, high = encoding.edges(i)
            moved[i] = min(max((u - low) / (high - low), 0.0), 1.0)
    return np.asarray(encoding.snap(moved[None])[0])
