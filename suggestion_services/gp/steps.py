"""Expected final scores of trials that early stopping has ended.

Notation: y_i the score of trial i; t_i its progress, 1 if it ran to its end, less if it was stopped at an earlier step.

A stopped trial has the value of its step. Taken for final, such values make cliffs between trials that are alike, as
what is stopped depends on the trials before it. So a model of all scores by columns and progress predicts its final
score, with mean m and deviation s. A trial is stopped for being worse than others at its step: its final score is
believed to be above b, the median of those that ran to their end, and its expected value is that of a normal
distribution cut off below b. It is at most y_i, since the value of a trial is its best reading. So a trial that ended
because it did not improve any more keeps its value.

Sources: [Swersky2014] Freeze-Thaw Bayesian Optimization, arXiv:1406.3896 (a process over parameters and time; here only
the end of each curve is known); [Tobin1958] Estimation of Relationships for Limited Dependent Variables, Econometrica
26 (censored values).
"""

from __future__ import annotations

import numpy as np

from suggestion_services.gp.acquisition import truncated_mean
from suggestion_services.gp.likelihood import ThetaLayout
from suggestion_services.gp.model import fit, subset
from suggestion_services.gp.optimize import FloatArray

_BEYOND = 2.0  # the end of a trial, in steps of the one that was stopped last: how long trials run is unknown
_MOST_TRIALS = 200  # in the model


def final_scores(x: FloatArray, scores: FloatArray, steps: FloatArray, layout: ThetaLayout) -> FloatArray:
    """Return the scores (n,) with expected final ones for stopped trials; the same if all or none were stopped.

    Args:
        x: Columns (n, c).
        scores: y, shape (n,), lower is better.
        steps: Steps at which trials were stopped (n,); NaN if they ran to their end.
        layout: Layout of the columns.
    """
    ended = np.isnan(steps)
    stopped = ~ended
    if np.all(ended) or np.all(stopped):
        return scores
    groups, numbers = np.append(layout.groups, layout.n_scales), np.append(layout.numbers, len(layout.groups))
    progress = np.log1p(np.where(ended, 0.0, steps)) / np.log(_BEYOND * (1.0 + np.nanmax(steps)))
    by_step = np.column_stack([x, np.where(ended, 1.0, progress)])
    kept = subset(x, scores, _MOST_TRIALS)
    model = fit(by_step[kept], scores[kept], ThetaLayout(groups, layout.warped, numbers))
    means, variances = model.predict(np.column_stack([x, np.ones(len(x))])[stopped])
    expected = truncated_mean(means, np.sqrt(variances), float(np.median(scores[ended])))
    found = scores.copy()
    found[stopped] = np.minimum(expected, scores[stopped])
    return found
