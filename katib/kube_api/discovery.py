"""What clients read first: the version, the groups and the resources, in the old form and the aggregated one. Pure."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from katib.kube_api.resources import Resource, group_versions
from katib.version import __version__

Json = dict[str, Any]
Resources = Sequence[Resource]

MINOR = "36"
"""Of the Kubernetes whose API this is; clients of up to one minor version more or less are supported by their rules."""

AGGREGATED = "APIGroupDiscoveryList"
REVIEWS = (
    ("authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io/v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ("authentication.k8s.io/v1", "selfsubjectreviews", "SelfSubjectReview"),
)
"""What is created to be answered and not stored: apiVersion, plural, kind."""


def version() -> Json:
    """Return the answer to `/version`."""
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


def api_versions() -> Json:
    """Return the answer to `/api`: the versions of the core group."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(resources: Resources) -> Json:
    """Return the answer to `/apis`: all groups but the core."""
    groups = [_group(name, versions) for name, versions in _groups(resources).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(resources: Resources, name: str) -> Json | None:
    """Return one group; None where there is none of that name."""
    versions = _groups(resources).get(name)
    return None if versions is None or not name else {"apiVersion": "v1", **_group(name, versions), "kind": "APIGroup"}


def resource_list(resources: Resources, api_version: str) -> Json | None:
    """Return the resources of a group's version; None where there is none."""
    entries = [
        entry
        for resource in resources
        if resource.kind.api_version == api_version
        for entry in (_entry(resource), *map(_subentry_of(resource), resource.subresources))
    ]
    entries += [
        {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
        for review_version, plural, kind in REVIEWS
        if review_version == api_version
    ]
    if not entries:
        return None
    own = {} if api_version == "v1" else {"apiVersion": "v1"}  # as the API server has it
    return {"kind": "APIResourceList", **own, "groupVersion": api_version, "resources": entries}


def aggregated(resources: Resources, *, core: bool, version_: str) -> Json:
    """Return all groups with their resources.

    Args:
        resources: What is served.
        core: Whether those below `/api` are wanted, or those below `/apis`.
        version_: Of the answer: `v2` or `v2beta1`.
    """
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None},
            "versions": [_aggregated_version(resources, name, version) for version in versions],
        }
        for name, versions in _groups(resources).items()
        if bool(name) is not core
    ]
    return {"kind": AGGREGATED, "apiVersion": f"apidiscovery.k8s.io/{version_}", "metadata": {}, "items": items}


def is_review(api_version: str, plural: str) -> bool:
    """Return whether what is created at a path is answered and not stored."""
    return (api_version, plural) in {(version, name) for version, name, _ in REVIEWS}


def _groups(resources: Resources) -> dict[str, list[str]]:
    found = group_versions(resources)
    for api_version, _, _ in REVIEWS:
        group_name, _, its_version = api_version.rpartition("/")
        found.setdefault(group_name, [its_version])
    return found


def _group(name: str, versions: Sequence[str]) -> Json:
    known = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": known, "preferredVersion": known[0]}


def _entry(resource: Resource) -> Json:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.is_namespaced,
        "kind": resource.kind.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _subentry_of(resource: Resource) -> Any:
    """Return what makes the entry of a subresource."""

    def entry(name: str) -> Json:
        return {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.is_namespaced,
            "kind": resource.kind.kind,
            "verbs": verbs_of(resource, name),
        }

    return entry


def verbs_of(resource: Resource, subresource: str) -> list[str]:
    """Return what may be done with a subresource."""
    writes = subresource == "status" and "update" in resource.verbs
    return ["get", "patch", "update"] if writes else ["get"]


def _aggregated_version(resources: Resources, group_name: str, version_: str) -> Json:
    api_version = f"{group_name}/{version_}" if group_name else version_
    found = [_aggregated_resource(resource) for resource in resources if resource.kind.api_version == api_version]
    found += [
        {
            "resource": plural,
            "responseKind": _response_kind(api_version, kind),
            "scope": "Cluster",
            "singularResource": kind.lower(),
            "verbs": ["create"],
        }
        for review_version, plural, kind in REVIEWS
        if review_version == api_version
    ]
    return {"version": version_, "resources": found, "freshness": "Current"}


def _aggregated_resource(resource: Resource) -> Json:
    kind = _response_kind(resource.kind.api_version, resource.kind.kind)
    entry: Json = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.is_namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": kind, "verbs": verbs_of(resource, name)}
            for name in resource.subresources
        ]
    return entry


def _response_kind(api_version: str, kind: str) -> Json:
    group_name, _, version_ = api_version.rpartition("/")
    return {"group": group_name, "version": version_, "kind": kind}
