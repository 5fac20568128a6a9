"""Bayesian optimization with a Gaussian process of our own, on NumPy and SciPy."""
