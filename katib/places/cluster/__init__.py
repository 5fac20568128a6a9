"""Composition for Kubernetes. Start with `controller.py`: it wires the whole controller on one page.

Belongs here: choosing implementations and connecting them, and what only a cluster has (leader election, webhooks,
metrics for Prometheus). Does not belong here: anything that one machine needs too.
"""
