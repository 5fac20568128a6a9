"""Bayesian optimization, on scikit-optimize."""
