"""What the sidecar is told about its pod beyond its arguments, by environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RESTART_VARIABLE = "KATIB_POD_RESTART_POLICY"
GRACE_VARIABLE = "KATIB_POD_GRACE_SECONDS"
NATIVE_VARIABLE = "KATIB_NATIVE_SIDECAR"
GIVE_UP_VARIABLE = "KATIB_GIVE_UP_SECONDS"
TERMINATION_LOG_VARIABLE = "KATIB_TERMINATION_LOG"

DEFAULT_GRACE_SECONDS = 30
DEFAULT_GIVE_UP_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The pod around the sidecar.

    Attributes:
        restart_policy: Of the pod: `Never`, `OnFailure` or `Always`.
        grace_seconds: Between SIGTERM and SIGKILL of the pod; a program stopped early has as long.
        is_native: Whether Kubernetes keeps the sidecar running: it must not end before it is told to.
        give_up_seconds: How long after the end of the program readings are kept for a database that is away.
        termination_log: Where Kubernetes reads what a container has to say at its end.
    """

    restart_policy: str = "Never"
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    is_native: bool = False
    give_up_seconds: float = DEFAULT_GIVE_UP_SECONDS
    termination_log: Path = Path("/dev/termination-log")

    @property
    def stays(self) -> bool:
        """Whether the sidecar would be started again when it ends, and therefore waits for SIGTERM."""
        return self.is_native or self.restart_policy == "Always"

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Surroundings:
        """Read the variables; one that is missing or unreadable has its default."""
        return cls(
            restart_policy=environment.get(RESTART_VARIABLE) or "Never",
            grace_seconds=_seconds(environment.get(GRACE_VARIABLE), DEFAULT_GRACE_SECONDS),
            is_native=environment.get(NATIVE_VARIABLE) == "true",
            give_up_seconds=_seconds(environment.get(GIVE_UP_VARIABLE), DEFAULT_GIVE_UP_SECONDS),
            termination_log=Path(environment.get(TERMINATION_LOG_VARIABLE) or "/dev/termination-log"),
        )


def _seconds(text: str | None, default: float) -> float:
    try:
        seconds = float(text or "")
    except ValueError:
        return default
    return seconds if 0 <= seconds < float("inf") else default
