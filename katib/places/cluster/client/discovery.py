"""Cache of the API server's discovery: the path that serves a kind.

Known kinds are kept until the server contradicts them. Unknown kinds are looked up again, at most every few seconds per
API version, so that a kind installed later is found without a restart and a missing one costs little. Negative results
expire after these seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from katib.errors import KindNotInstalledError, NotFoundError

ASK_AGAIN_SECONDS = 3.0

_LOCKS = 16
"""Lookups of API versions that share a lock wait for each other; one lock per version would accumulate."""

Fetch = Callable[[str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ApiResource:
    """The path and properties under which the API server serves a kind."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    has_status: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of an object; without a name that of the list, without a namespace across all namespaces."""
        path = version_path(self.api_version)
        if self.namespaced and namespace:
            path += f"/namespaces/{quote(namespace, safe='')}"
        path += f"/{self.plural}"
        if name:
            path += f"/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


class Discovery:
    """Looks up how kinds are served. Thread-safe.

    Args:
        fetch: Returns the JSON at a path of the API server; raises NotFoundError or KindNotInstalledError for 404.
        monotonic: Monotonic clock in seconds.
    """

    def __init__(self, fetch: Fetch, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], ApiResource] = {}
        self._asked: dict[str, float] = {}
        self._asking = tuple(threading.Lock() for _ in range(_LOCKS))

    def resource(self, api_version: str, kind: str) -> ApiResource:
        """Return how a kind is served.

        Raises:
            KindNotInstalledError: It is not served, or was not served moments ago.
            UnavailableError: The API server does not answer.
        """
        found = self._known.get((api_version, kind))
        if found is not None:
            return found
        with self._asking[hash(api_version) % _LOCKS]:
            if (api_version, kind) not in self._known:
                self._ask(api_version)
        try:
            return self._known[api_version, kind]
        except KeyError:
            raise KindNotInstalledError(
                f"{api_version} {kind}: the cluster has no such kind; install it (its CustomResourceDefinition) or "
                "fix apiVersion and kind"
            ) from None

    def forget(self, resource: ApiResource) -> None:
        """Forget a kind that the server contradicted; the next lookup asks the server at once."""
        with self._lock:
            if self._known.get((resource.api_version, resource.kind)) is resource:
                del self._known[resource.api_version, resource.kind]
                self._asked.pop(resource.api_version, None)

    def _ask(self, api_version: str) -> None:
        now = self._monotonic()
        with self._lock:
            self._asked = {version: at for version, at in self._asked.items() if now - at < ASK_AGAIN_SECONDS}
            if api_version in self._asked:
                return
        try:
            answer = self._fetch(version_path(api_version))
        except (NotFoundError, KindNotInstalledError):
            answer = {}
        found = _resources(api_version, answer)
        with self._lock:
            self._asked[api_version] = now
            self._known.update(found)


def version_path(api_version: str) -> str:
    root = "/apis" if "/" in api_version else "/api"
    return f"{root}/{quote(api_version, safe='/')}"


def _resources(api_version: str, answer: Mapping[str, Any]) -> dict[tuple[str, str], ApiResource]:
    entries = answer.get("resources") or ()
    names = {entry["name"] for entry in entries}
    return {
        (api_version, entry["kind"]): ApiResource(
            api_version, entry["kind"], entry["name"], entry["namespaced"], f"{entry['name']}/status" in names
        )
        for entry in entries
        if "/" not in entry["name"]
    }
