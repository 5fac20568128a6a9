"""What clients ask about themselves: the one user of this server may do everything that it can do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from katib.kube_api.discovery import REVIEWS

Json = dict[str, Any]

USER = "katib"

_ANSWERS: Mapping[str, Json] = {
    "SelfSubjectAccessReview": {"allowed": True, "reason": "the token of this server allows everything"},
    "SelfSubjectRulesReview": {
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    },
    "SelfSubjectReview": {"userInfo": {"username": USER, "groups": ["system:authenticated"]}},
}


def review(plural: str, spec: Any) -> Json:
    """Return an answered review; whatever is asked, the answer is the same.

    Args:
        plural: Which one, as its path names it.
        spec: What is asked.
    """
    api_version, _, kind = next(entry for entry in REVIEWS if entry[1] == plural)
    return {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec, "status": _ANSWERS[kind]}
