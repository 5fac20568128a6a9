"""What a cluster can do, by the versions of its API server and of its oldest node.

Pods land on any node, and nodes may be older than the API server. Of nodes only the columns that `kubectl get nodes`
shows are read, page by page: a node as it is lists all images it has.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any

from katib.cluster.client import Connection
from katib.errors import ForbiddenError
from katib.runtime.clock import Clock
from katib.runtime.periodic import Periodic

PERIOD_SECONDS = 30.0
"""How often nodes are looked at. A new one of an older version takes about as long to get ready."""

_PAGE_SIZE = 500
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

NATIVE_SIDECARS = (1, 29)
_GRPC_PROBES = (1, 24)
_VALIDATION_RULES = (1, 25)
_SKEW = 3
"""How many minor versions a node may be older than its API server."""

Number = tuple[int, int]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterVersion:
    """Version of an API server: `(1, 29)`."""

    number: Number

    @classmethod
    def of(cls, connection: Connection) -> ClusterVersion:
        """Ask an API server.

        Raises:
            UnavailableError: It does not answer.
        """
        answer = connection.request("GET", "/version")
        return cls(number_of(f"{answer.get('major')}.{answer.get('minor')}"))  # some clusters say `29+`

    @property
    def has_grpc_probes(self) -> bool:
        """Whether kubelets ask gRPC services for their health."""
        return self.number >= _GRPC_PROBES

    @property
    def has_validation_rules(self) -> bool:
        """Whether a definition may carry rules in CEL, about changes too."""
        return self.number >= _VALIDATION_RULES


def number_of(text: str) -> Number:
    """Return the number of a version as kubelets write theirs, such as `v1.29.3-gke.100`; zeros when there is none."""
    match = re.match(r"v?(\d+)\+?\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def native_sidecars_work(server: Number, oldest_node: Number | None) -> bool:
    """Return whether an init container that asks for it keeps running, wherever a pod lands.

    Args:
        server: Version of the API server.
        oldest_node: Version of the oldest node; None when it is not known.
    """
    if oldest_node is None:
        oldest_node = (server[0], server[1] - _SKEW)
    return min(server, oldest_node) >= NATIVE_SIDECARS


def oldest_node(connection: Connection) -> Number | None:
    """Return the version of the oldest kubelet; None when there is no node, or none may be read.

    Raises:
        KatibError: The API server does not answer.
    """
    query = {"includeObject": "None"}
    try:
        pages = connection.pages("/api/v1/nodes", query=query, page_size=_PAGE_SIZE, accept=_TABLE)
        return min((number for page in pages for number in _versions(page)), default=None)
    except ForbiddenError:
        return None


def _versions(table: dict[str, Any]) -> list[Number]:
    names = [column.get("name") for column in table.get("columnDefinitions") or ()]
    if "Version" not in names:
        return []
    column = names.index("Version")
    numbers = (number_of(str(row["cells"][column])) for row in table.get("rows") or ())
    return [number for number in numbers if number != (0, 0)]  # a node that has not said yet what it is


class NativeSidecars:
    """Knows whether native sidecars work, and looks again now and then. Called, it answers from memory.

    Args:
        connection: To the API server.
        clock: Where time is measured.
    """

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._works = False
        self._looks = Periodic("nodes", [self.look], PERIOD_SECONDS, clock, complaint="Nodes not looked at")

    def __call__(self) -> bool:
        """Return whether native sidecars worked on every node when they were looked at last; not before."""
        return self._works

    def start(self) -> None:
        """Look once, and then now and then."""
        self._looks.look()
        self._looks.start()

    def stop(self) -> None:
        """Stop looking."""
        self._looks.stop()

    def look(self) -> None:
        """Look once.

        Raises:
            KatibError: The API server does not answer.
        """
        works = native_sidecars_work(ClusterVersion.of(self._connection).number, oldest_node(self._connection))
        if works != self._works:
            _log.info("Native sidecars", extra={"used": works})
        self._works = works
