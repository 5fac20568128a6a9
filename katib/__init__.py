"""Katib-compatible hyperparameter tuning, on a laptop or on Kubernetes.

Start reading at `katib.engine`, which wires the whole service for one machine, then at
`katib.controllers.experiment.reconciler`.
"""

__version__ = "0.1.0"
