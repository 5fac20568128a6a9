"""A request in RBAC terms, parsed from its path as the API server's authorization parses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

_WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES = frozenset(("status", "finalize"))
_READS = frozenset(("get", "list", "watch"))


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """One request in RBAC terms.

    Attributes:
        verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
        api_group: `apps`; empty for the core group.
        api_version: As objects write it: `apps/v1`, `v1`.
        resource: Plural, lower case: `deployments`. Empty for a path without objects, such as discovery.
        subresource: `status`, `log`; empty for the object itself.
        namespace: Empty for all namespaces and for cluster-scoped objects.
        name: Empty for a request about many objects, and for a creation.
        path: The path, for requests that are not about objects.
    """

    verb: str
    api_group: str = ""
    api_version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def is_write(self) -> bool:
        return self.verb not in _READS

    @property
    def subject(self) -> str:
        """Name of the requested objects in messages: `jobs.batch team/a`."""
        if not self.resource:
            return self.path
        group = f".{self.api_group}" if self.api_group else ""
        key = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self._resource}{group} {key}".rstrip()

    @property
    def rule(self) -> str:
        """The RBAC rule that allows the request, as written in a Role, and its scope."""
        if not self.resource:
            return f'{{nonResourceURLs: ["{self.path}"], verbs: ["{self.verb}"]}} for the whole cluster'
        where = f"in namespace {self.namespace}" if self.namespace else "for the whole cluster"
        return f'{{apiGroups: ["{self.api_group}"], resources: ["{self._resource}"], verbs: ["{self.verb}"]}} {where}'

    @property
    def _resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def request_info(method: str, path: str, query: Mapping[str, str] | None = None) -> RequestInfo:
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, number, *rest] if rest:
            version = f"{group}/{number}"
        case _:
            return RequestInfo(_WRITES.get(method, "get"), path=path)
    namespace = ""
    match rest:
        case ["namespaces", inside, resource, *_] if resource not in _OF_NAMESPACES:
            namespace, rest = inside, rest[2:]
    resource, name, subresource, *_ = [*rest, "", ""]
    verb = _verb(method, is_one=bool(name), query=query or {})
    return RequestInfo(verb, group, version, resource, subresource, namespace, name, path)


def _verb(method: str, *, is_one: bool, query: Mapping[str, str]) -> str:
    if method == "DELETE" and not is_one:
        return "deletecollection"
    if method in _WRITES:
        return _WRITES[method]
    if query.get("watch") in {"1", "true"}:
        return "watch"
    return "get" if is_one else "list"
