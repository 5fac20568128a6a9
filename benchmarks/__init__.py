"""Benchmarks: each measures our code and a rival or a physical limit in the same run and prints the ratio."""
