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
    r2 += np.sum(a * a, axis=-1)[..., :, None]
    r2 += np.sum(b * b, axis=-1)[..., None, :]
    return np.maximum(r2, 0.0, out=r2)


def matern(r2: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the kernel and its slope by the squared distance, both of the shape of `r2`."""
    t = np.sqrt(5.0 * r2)
    e = np.exp(-t)
    slope = (1.0 + t) * e
    k = slope + (5.0 / 3.0) * r2 * e
    slope *= -5.0 / 6.0
    return k, slope
