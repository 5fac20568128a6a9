"""Kinds that tests have on an API server: installed, seen by its garbage collector, emptied, taken away."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from katib.engine.runtime.objects import Kind
from katib.model.types import API_VERSION
from tests.support.stores import GADGET, NOTE, STAND_IN, WIDGET, owned_by, widget
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from tests.support.api_server import ApiServer

CRDS = Path(__file__).resolve().parents[2] / "manifests" / "components" / "crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GARBAGE_SECONDS = 180.0
"""The garbage collector looks for new kinds every 30 s."""


def install_test_kinds(server: ApiServer) -> None:
    """Install the kinds that mean nothing, which take any content and have a status."""
    for kind in (WIDGET, GADGET):
        install_kind(server, kind.api_version, kind.kind)
    install_kind(server, NOTE.api_version, NOTE.kind, has_status=False)


def install_our_kinds(server: ApiServer) -> None:
    """Install the kinds of the product as the manifests have them, and what trials of tests run as."""
    definitions = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
    for definition in definitions:
        if definition["kind"] == "CustomResourceDefinition":
            server.create(DEFINITIONS, definition)
            _await_kind(server, API_VERSION, definition["spec"]["names"]["kind"], definition["spec"]["names"]["plural"])
    install_kind(server, STAND_IN.api_version, STAND_IN.kind)


def install_kind(
    server: ApiServer, api_version: str, kind: str, *, has_status: bool = True, scope: str = "Namespaced"
) -> None:
    """Install a kind that takes any content; wait until it is served."""
    server.create(DEFINITIONS, definition_of(api_version, kind, has_status=has_status, scope=scope))
    _await_kind(server, api_version, kind, f"{kind.lower()}s")


def definition_of(api_version: str, kind: str, *, has_status: bool = True, scope: str = "Namespaced") -> dict[str, Any]:
    """Return the definition of a kind that takes any content."""
    group, version = api_version.split("/")
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    versions = [{**served, "subresources": {"status": {}} if has_status else {}}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": versions},
    }


def _await_kind(server: ApiServer, api_version: str, kind: str, plural: str) -> None:
    eventually(lambda: exists(server, f"/apis/{api_version}/{plural}"), f"{kind} to be served")
    eventually(lambda: _is_listed(server, api_version, kind), f"{kind} to be listed among the kinds")


def remove_kind(server: ApiServer, api_version: str, kind: str) -> None:
    """Take a kind away, with all its objects; wait until it is gone."""
    group = api_version.split("/", maxsplit=1)[0]
    plural = f"{kind.lower()}s"
    server.admin.request("DELETE", f"{DEFINITIONS}/{plural}.{group}")
    eventually(lambda: not exists(server, f"/apis/{api_version}/{plural}"), f"{kind} to be gone")


def objects_of_tests(server: ApiServer) -> list[dict[str, Any]]:
    """Return all objects of the kinds of the tests as they are kept, but for the bookkeeping of fields."""
    found = []
    for kind in (WIDGET, GADGET, NOTE):
        for item in server.admin.request("GET", _path_of(kind))["items"]:
            item["metadata"].pop("managedFields", None)
            found.append(item)
    return found


def clear_test_kinds(server: ApiServer) -> None:
    """Delete all objects of the kinds of the tests, whatever finalizers they have; wait until they are gone.

    A server that was started again lists its kinds one after the other.
    """
    server.settle()
    for kind in (WIDGET, GADGET, NOTE):
        eventually(lambda kind=kind: _is_listed(server, kind.api_version, kind.kind), f"{kind} to be listed")

    def is_clear() -> bool:
        left = objects_of_tests(server)
        for obj in left:
            _remove(server, obj)
        return not left

    eventually(is_clear, "the objects of the last test to be gone")


def _remove(server: ApiServer, obj: Mapping[str, Any]) -> None:
    from katib.errors import NotFoundError

    metadata = obj["metadata"]
    path = f"{_path_of(Kind.of(obj), metadata['namespace'])}/{metadata['name']}"
    patch = "application/merge-patch+json"
    with suppress(NotFoundError):
        if metadata.get("finalizers"):
            server.admin.request("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=patch)
        server.admin.request("DELETE", path)


def _path_of(kind: Kind, namespace: str = "") -> str:
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{kind.api_version}{within}/{kind.kind.lower()}s"


def await_garbage_collection(server: ApiServer) -> None:
    """Wait until what a gone Widget and a gone Gadget owned is deleted."""
    namespace = server.namespace("garbage-probe")
    for owning, kind in ((WIDGET, GADGET), (GADGET, WIDGET)):
        owners, owned = _path_of(owning, namespace), _path_of(kind, namespace)
        owner = server.create(owners, widget("owner", namespace, kind=owning))
        server.create(owned, widget("owned", namespace, kind=kind, ownerReferences=owned_by(owner)))
        server.admin.request("DELETE", f"{owners}/owner")
        eventually(
            lambda path=f"{owned}/owned": not exists(server, path), "garbage collection", seconds=GARBAGE_SECONDS
        )


def _is_listed(server: ApiServer, api_version: str, kind: str) -> bool:
    """Return whether clients that ask which kinds there are hear of this one: a moment later than it is served."""
    from katib.errors import NotFoundError, UnavailableError

    try:
        kinds = server.admin.request("GET", f"/apis/{api_version}")["resources"]
    except (NotFoundError, UnavailableError):
        return False
    return any(found["kind"] == kind for found in kinds)


def exists(server: ApiServer, path: str) -> bool:
    """Return whether something is served at a path; of a list, at most one object is fetched."""
    from katib.errors import NotFoundError, UnavailableError

    try:
        server.admin.request("GET", path, query={"limit": "1"} if path.endswith("s") else None)
    except (NotFoundError, UnavailableError):
        return False
    return True
