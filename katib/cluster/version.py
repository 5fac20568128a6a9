"""What a cluster can do, by its version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from katib.cluster.client import Connection

_GRPC_PROBES = (1, 24)
_VALIDATION_RULES = (1, 25)


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
    def has_validation_rules(self) -> bool:
        """Whether a definition may carry rules in CEL, about changes too."""
        return self.number >= _VALIDATION_RULES


def number_of(text: str) -> tuple[int, int]:
    """Return the number of a version as kubelets write theirs, such as `v1.29.3-gke.100`; zeros when there is none."""
    match = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def _number(text: str) -> int:
    """Return the number that a text begins with: some clusters say `29+`."""
    match = re.match(r"\d+", text)
    return int(match.group()) if match else 0
