"""The address to which a program posts its status, and the variables in which it finds it."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote, urlencode

URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
TOKEN_FILE_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable, not a token
AUTHORITIES_VARIABLE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
PATH, END, METRIC = "/trials/", "/status", "metric"


def path_of(trial_name: str, metrics: Collection[str]) -> str:
    """Return the path, with a query, for a trial's status; these metrics are stored."""
    return f"{PATH}{quote(trial_name)}{END}?{urlencode({METRIC: sorted(metrics)}, doseq=True)}"
