"""Observability for operators: probes, metrics for Prometheus, structured logs.

Belongs here: the presentation. Does not belong here: what is counted or logged, which is decided at its source.
"""
