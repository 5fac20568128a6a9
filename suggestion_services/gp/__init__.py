"""Bayesian optimization with a Gaussian process on NumPy and SciPy."""
