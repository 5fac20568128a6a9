"""Sobol sequences, on SciPy."""
