"""What a cluster can do, by its version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from katib.kube import Connection

_GRPC_PROBES = (1, 24)
_NATIVE_SIDECARS = (1, 29)


@dataclass(frozen=True, slots=True)
class ClusterVersion:
    """Version of an API server: `(1, 29)`."""

    number: tuple[int, int]

    @classmethod
    def of(cls, connection: Connection) -> ClusterVersion:
        """Ask an API server.

        Raises:
            UnavailableError: It does not answer.
        """
        answer = connection.request("GET", "/version")
        return cls((_number(answer.get("major", "")), _number(answer.get("minor", ""))))

    @property
    def has_grpc_probes(self) -> bool:
        """Whether kubelets ask gRPC services for their health."""
        return self.number >= _GRPC_PROBES

    @property
    def has_native_sidecars(self) -> bool:
        """Whether an init container may go on beside the others."""
        return self.number >= _NATIVE_SIDECARS


def _number(text: str) -> int:
    """Return the number that a text begins with: some clusters say `29+`."""
    match = re.match(r"\d+", text)
    return int(match.group()) if match else 0
