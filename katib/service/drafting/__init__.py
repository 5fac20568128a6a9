"""Experiments from a command line, a job, a batch script or the file of another tool, and words of other tools."""
