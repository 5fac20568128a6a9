"""How long failure makes wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delays:
    """The back-off of Kubernetes: of the Job controller for new pods, of the kubelet for restarts in place.

    Attributes:
        recreate_base_seconds: After the first failure; doubles with each further one in a row.
        recreate_limit_seconds: Where that ends.
        restart_base_seconds: Before the second restart (the first is immediate); doubles with each further one.
        restart_limit_seconds: Where that ends.
        restart_reset_seconds: A container that ran for so long has its restarts forgiven.
    """

    recreate_base_seconds: float = 10.0
    recreate_limit_seconds: float = 600.0
    restart_base_seconds: float = 10.0
    restart_limit_seconds: float = 300.0
    restart_reset_seconds: float = 600.0

    def before_new_pod(self, failures: int) -> float:
        """Return the delay after so many failures in a row."""
        return _doubled(self.recreate_base_seconds, failures - 1, self.recreate_limit_seconds) if failures else 0.0

    def before_restart(self, restarts: int) -> float:
        """Return the delay when a container was already restarted so many times."""
        return _doubled(self.restart_base_seconds, restarts - 1, self.restart_limit_seconds) if restarts else 0.0


def _doubled(base: float, times: int, limit: float) -> float:
    return min(limit, base * 2.0 ** min(times, 60))
