"""Which algorithm when: what `docs/reference/algorithms.md` and the page say."""

from __future__ import annotations

ADVICE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("up to a few hundred trials that take seconds or longer, of any kinds of parameters", ("gp",)),
    ("a thousand trials or more, or trials that end at once", ("tpe", "multivariate-tpe")),
    ("continuous parameters only and many hundred trials", ("cmaes",)),
    ("a small table of combinations, all of which you want to see", ("grid",)),
    ("as many trials at once as there will be at all, or a baseline for a plot", ("sobol",)),
    ("several objectives that contradict each other", ("nsga2", "motpe")),
    ("trainings of which a short one predicts a long one", ("asha", "hyperband", "bohb")),
    ("a training in which hyperparameters should change while it runs", ("pbt",)),
    ("the structure of a network to find", ("enas", "darts")),
    ("experiments for Katib's service on scikit-optimize", ("bayesianoptimization",)),
    ("something to compare with", ("random",)),
)
"""Situations, and the algorithms that suit them. `auto` chooses for users who do not know."""


def suits(algorithm: str) -> str:
    """Return what an algorithm is for, a clause; empty where nothing is known."""
    return next((situation for situation, names in ADVICE if algorithm in names), "")
