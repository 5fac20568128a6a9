"""Benchmarks: each runs our code and its rival or its physical limit in one run and prints the ratio."""
