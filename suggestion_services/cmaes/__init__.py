"""Covariance matrix adaptation evolution strategy, on the package `cmaes`."""
