"""Names, labels and annotations: built and parsed here and nowhere else."""

from __future__ import annotations

import hashlib
from collections.abc import Container
from itertools import count

EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
TRIAL_LABEL = "katib.kubeflow.org/trial"
"""On pods: whose they are."""

EXPERIMENT_FINALIZER = "update-prometheus-metrics"
TRIAL_FINALIZER = "clean-metrics-in-db"

METRICS_REPORT_ANNOTATION = "katib.kubeflow.org/metrics-report"
"""On a job: what its collector has to say when the objective metric was not found."""

MAX_EXPERIMENT_NAME = 40

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 8


def trial_name(namespace: str, experiment: str, index: int, taken: Container[str] = ()) -> str:
    """Return the name of the index-th trial of an experiment; the next one in line if that is taken.

    The suffix looks random, as Katib's does, but is a hash: the same experiment gets the same names on every run, a
    repeated create is a conflict and not a twin, and equally named experiments of two namespaces do not share names.
    """
    names = (_trial_name(experiment, f"{namespace}/{experiment}/{index}" + "+" * repeat) for repeat in count())
    return next(name for name in names if name not in taken)


def _trial_name(experiment: str, text: str) -> str:
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest())
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        digest, letter = divmod(digest, len(_SUFFIX_ALPHABET))
        suffix += _SUFFIX_ALPHABET[letter]
    return f"{experiment}-{suffix}"
