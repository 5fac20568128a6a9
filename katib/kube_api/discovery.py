"""What clients read first: the version, the groups and the resources, in the old form and the aggregated one. Pure."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from katib.kube_api.resources import REVIEWS, Resource, group_versions
from katib.version import __version__

Json = dict[str, Any]
Resources = Sequence[Resource]

MINOR = "36"
"""Of the Kubernetes whose API this is; clients of up to one minor version more or less are supported by their rules."""

AGGREGATED = "APIGroupDiscoveryList"


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
    groups = [_group(name, versions) for name, versions in group_versions((*resources, *REVIEWS)).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(resources: Resources, name: str) -> Json | None:
    """Return one group; None where there is none of that name."""
    versions = group_versions((*resources, *REVIEWS)).get(name)
    return None if versions is None or not name else {"apiVersion": "v1", **_group(name, versions), "kind": "APIGroup"}


def resource_list(resources: Resources, api_version: str) -> Json | None:
    """Return the resources of a group's version; None where there is none."""
    entries = [
        entry
        for resource in (*resources, *REVIEWS)
        if resource.kind.api_version == api_version
        for entry in (_entry(resource), *map(_subentry_of(resource), resource.subresources))
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
        for name, versions in group_versions((*resources, *REVIEWS)).items()
        if bool(name) is not core
    ]
    return {"kind": AGGREGATED, "apiVersion": f"apidiscovery.k8s.io/{version_}", "metadata": {}, "items": items}


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
    return entry | _words(resource)


def _words(resource: Resource) -> Json:
    words = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {name: texts for name, texts in words.items() if texts}


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
    every = (*resources, *REVIEWS)
    found = [_aggregated_resource(resource) for resource in every if resource.kind.api_version == api_version]
    return {"version": version_, "resources": found, "freshness": "Current"}


def _aggregated_resource(resource: Resource) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind.kind}
    entry: Json = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.is_namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **_words(resource),
    }
    if resource.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": kind, "verbs": verbs_of(resource, name)}
            for name in resource.subresources
        ]
    return entry
