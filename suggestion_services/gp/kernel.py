"""The Matern kernel of smoothness 5/2, and distances.

Notation: a point is a row of c columns, scaled by its length scales; r2 is the squared distance of two rows.
With t = sqrt(5 r2): k = (1 + t + t^2 / 3) exp(-t), and its slope dk / d(r2) = -5/6 (1 + t) exp(-t), finite also at 0.
Source: [Rasmussen2006] Gaussian Processes for Machine Learning, equation 4.17.
"""

from __future__ import annotations

import numpy as np

from suggestion_services.gp.optimize import FloatArray


def squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the squared distances (..., n, m) between rows (..., n, c) and (..., m, c)."""
    r2 = a @ np.swapaxes(b, -1, -2)
    r2 *= -2.0
    r2 += np.einsum("...i,...i->...", a, a)[..., :, None]
    r2 += np.einsum("...i,...i->...", b, b)[..., None, :]
    return np.maximum(r2, 0.0, out=r2)


def matern(r2: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the kernel and its slope by the squared distance, both of the shape of `r2`."""
    slope = np.multiply(r2, 5.0)
    np.sqrt(slope, out=slope)
    e = np.negative(slope)
    np.exp(e, out=e)
    slope += 1.0
    slope *= e
    e *= 5.0 / 3.0
    e *= r2
    e += slope
    slope *= -5.0 / 6.0
    return e, slope


def matern_values(r2: FloatArray) -> FloatArray:
    """Return the kernel alone, which overwrites the squared distances."""
    r2 *= 5.0
    t = np.sqrt(r2)
    r2 *= 1.0 / 3.0
    r2 += t
    r2 += 1.0
    np.negative(t, out=t)
    np.exp(t, out=t)
    r2 *= t
    return r2
