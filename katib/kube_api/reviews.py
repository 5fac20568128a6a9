"""What clients ask about themselves: the one user of this server may do everything that it can do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from katib.kube_api.resources import Resource

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


def review(resource: Resource, spec: Any) -> Json:
    """Return an answered review; whatever is asked, the answer is the same.

    Args:
        resource: Which one.
        spec: What is asked.
    """
    api_version, kind = resource.kind
    return {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec, "status": _ANSWERS[kind]}
