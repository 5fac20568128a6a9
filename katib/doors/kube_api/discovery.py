"""Discovery: the version, the groups and the resources, in the old form and the aggregated one. Pure.

Also access reviews of the client itself: the only user of this server may do everything.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from katib.doors.kube_api.resources import REVIEWS, ServedResource, group_versions
from katib.model.version import __version__

Json = dict[str, Any]
Resources = Sequence[ServedResource]

MINOR = "36"
"""Minor version of the implemented Kubernetes API; clients within one minor version are supported by its skew
policy."""

AGGREGATED = "APIGroupDiscoveryList"
AGGREGATED_MEDIA_TYPE = f"application/json;g=apidiscovery.k8s.io;v=v2;as={AGGREGATED}"


def version() -> Json:
    return {
        "major": "1",
        "minor": MINOR,
        "gitVersion": f"v1.{MINOR}.0+katib-{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def paths(resources: Resources) -> Json:
    groups = group_versions((*resources, *REVIEWS)).items()
    of_groups = [
        f"/apis/{name}{last}" for name, of_name in groups if name for last in ("", *map("/{}".format, of_name))
    ]
    found = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
    return {"paths": sorted([*found, *of_groups])}


def api_versions() -> Json:
    """Return the response to `/api`: the versions of the core group."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(resources: Resources) -> Json:
    """Return the response to `/apis`: all groups except the core."""
    groups = [_group(name, versions) for name, versions in group_versions((*resources, *REVIEWS)).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(resources: Resources, name: str) -> Json | None:
    versions = group_versions((*resources, *REVIEWS)).get(name)
    return None if versions is None or not name else {"apiVersion": "v1", **_group(name, versions), "kind": "APIGroup"}


def resource_list(resources: Resources, api_version: str) -> Json | None:
    """Return the resources of a group's version; None if there is none."""
    found = [resource for resource in (*resources, *REVIEWS) if resource.kind.api_version == api_version]
    if not found:
        return None
    entries = [entry for resource in found for entry in _entries(resource)]
    own = {} if api_version == "v1" else {"apiVersion": "v1"}  # as in an API server
    return {"kind": "APIResourceList", **own, "groupVersion": api_version, "resources": entries}


def aggregated(resources: Resources, *, core: bool) -> Json:
    """Return all groups with their resources.

    Args:
        core: Whether to return the groups below `/api`, or those below `/apis`.
    """
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None},
            "versions": [_aggregated_version(resources, name, version) for version in versions],
        }
        for name, versions in group_versions((*resources, *REVIEWS)).items()
        if bool(name) is not core
    ]
    return {"kind": AGGREGATED, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _group(name: str, versions: Sequence[str]) -> Json:
    known = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": known, "preferredVersion": known[0]}


def _entries(resource: ServedResource) -> Iterator[Json]:
    said = {"namespaced": resource.is_namespaced, "kind": resource.kind.kind}
    own = {"name": resource.plural, "singularName": resource.singular, **said, "verbs": list(resource.verbs)}
    yield own | _words(resource)
    for name in resource.subresources:
        yield {"name": f"{resource.plural}/{name}", "singularName": "", **said, "verbs": verbs_of(resource, name)}


def _words(resource: ServedResource) -> Json:
    words = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {name: texts for name, texts in words.items() if texts}


def verbs_of(resource: ServedResource, subresource: str) -> list[str]:
    writes = subresource == "status" and "update" in resource.verbs
    return ["get", "patch", "update"] if writes else ["get"]


def _aggregated_version(resources: Resources, group_name: str, version_: str) -> Json:
    found = [one for one in (*resources, *REVIEWS) if (one.group, one.version) == (group_name, version_)]
    return {"version": version_, "resources": list(map(_aggregated_resource, found)), "freshness": "Current"}


def _aggregated_resource(resource: ServedResource) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind.kind}
    entry: Json = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.is_namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **_words(resource),
    }
    further = [
        {"subresource": name, "responseKind": kind, "verbs": verbs_of(resource, name)} for name in resource.subresources
    ]
    return {**entry, "subresources": further} if further else entry


# --- reviews ----------------------------------------------------------------------------------------------------------

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


def review(resource: ServedResource, spec: Any) -> Json:
    """Return an answered review; the answer is independent of the question."""
    api_version, kind = resource.kind
    return {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec, "status": _ANSWERS[kind]}
