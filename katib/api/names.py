"""Names, labels and annotations: built and parsed here and nowhere else."""

from __future__ import annotations

import hashlib

EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
TRIAL_LABEL = "katib.kubeflow.org/trial"
DEPLOYMENT_LABEL = "katib.kubeflow.org/deployment"
SUGGESTION_LABEL = "katib.kubeflow.org/suggestion"

EXPERIMENT_FINALIZER = "update-prometheus-metrics"
TRIAL_FINALIZER = "clean-metrics-in-db"

METRICS_REPORT_ANNOTATION = "katib.kubeflow.org/metrics-report"
"""On a job: what its collector has to say when the objective metric was not found."""

MAX_EXPERIMENT_NAME = 40

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 8


def trial_name(namespace: str, experiment: str, index: int) -> str:
    """Return the name of the index-th trial of an experiment.

    The suffix looks random, as Katib's does, but is a hash: the same experiment gets the same names on every run, a
    repeated create is a conflict and not a twin, and equally named experiments of two namespaces do not share names.
    """
    digest = int.from_bytes(hashlib.sha256(f"{namespace}/{experiment}/{index}".encode()).digest())
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        digest, letter = divmod(digest, len(_SUFFIX_ALPHABET))
        suffix += _SUFFIX_ALPHABET[letter]
    return f"{experiment}-{suffix}"


def service_name(suggestion: str, algorithm: str) -> str:
    """Return the name of the Deployment and Service of a suggestion."""
    return f"{suggestion}-{algorithm}"
