"""Settings of the sidecar for its pod, in addition to its arguments: environment variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from katib.wire.rpc.credentials import NO_CREDENTIALS, DbManagerCredentials

RESTART_VARIABLE = "KATIB_POD_RESTART_POLICY"
PROGRAM_RESTART_VARIABLE = "KATIB_PROGRAM_RESTART"
GRACE_VARIABLE = "KATIB_POD_GRACE_SECONDS"
ALONE_VARIABLE = "KATIB_PROGRAM_ALONE"
GIVE_UP_VARIABLE = "KATIB_GIVE_UP_SECONDS"
POD_UID_VARIABLE = "KATIB_POD_UID"
KIND_VARIABLE = "KATIB_COLLECTOR_KIND"
HTTP_GET_VARIABLE = "KATIB_METRICS_HTTP_GET"
LAUNCHER_VARIABLE = "KATIB_LAUNCHER_DIRECTORY"
TERMINATION_LOG_VARIABLE = "KATIB_TERMINATION_LOG"

DEFAULT_GRACE_SECONDS = 30
DEFAULT_GIVE_UP_SECONDS = 3600.0

_NATIVE_SHARE_OF_GRACE = 0.6
"""The launcher takes a quarter of it; the rest is reserve."""


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The pod around the sidecar.

    Attributes:
        restart_policy: Restart policy of the pod: `Never`, `OnFailure` or `Always`.
        program_restart: Restart policy of the program's own container, as in the pod's spec; empty: none.
        grace_seconds: Time between SIGTERM and SIGKILL of the pod, and of a program stopped early.
        is_alone: Whether the pod has no other containers than the program's and its sidecars.
        give_up_seconds: How long after the end of the program readings are kept while the database is unavailable.
        termination_log: Path of the container's termination message.
        pod_uid: Identity of the pod, because several may share a directory on a volume.
        kind: Kind of the collector; empty: determined by the flags.
        http_get: The program's endpoint as JSON, as in the source of the collector.
        launcher_directory: Directory shared with the program's launcher; None without one, as under Katib's controller.
    """

    restart_policy: str = "Never"
    program_restart: Mapping[str, Any] = field(default_factory=dict)
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    is_alone: bool = False
    give_up_seconds: float = DEFAULT_GIVE_UP_SECONDS
    termination_log: Path = Path("/dev/termination-log")
    credentials: DbManagerCredentials = NO_CREDENTIALS
    pod_uid: str = "collector"
    kind: str = ""
    http_get: str = ""
    launcher_directory: Path | None = None

    @property
    def is_native(self) -> bool:
        """Whether Kubernetes keeps the sidecar running: it must not end before SIGTERM."""
        return self.launcher_directory is not None

    @property
    def stays(self) -> bool:
        """Whether the sidecar would be restarted when it ends, and therefore waits for SIGTERM."""
        return self.is_native or self.restart_policy == "Always"

    @property
    def seconds_to_end(self) -> float:
        """Time from SIGTERM to the end of the sidecar. A native one gets SIGTERM only after the program's container."""
        return self.grace_seconds * (_NATIVE_SHARE_OF_GRACE if self.is_native else 1)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> PodSettings:
        """Read the variables; one that is missing or unreadable has its default."""
        return cls(
            restart_policy=environment.get(RESTART_VARIABLE) or "Never",
            program_restart=json.loads(environment.get(PROGRAM_RESTART_VARIABLE) or "{}"),
            grace_seconds=_seconds(environment.get(GRACE_VARIABLE), DEFAULT_GRACE_SECONDS),
            is_alone=environment.get(ALONE_VARIABLE) == "true",
            give_up_seconds=_seconds(environment.get(GIVE_UP_VARIABLE), DEFAULT_GIVE_UP_SECONDS),
            termination_log=Path(environment.get(TERMINATION_LOG_VARIABLE) or "/dev/termination-log"),
            credentials=DbManagerCredentials.of(environment),
            pod_uid=environment.get(POD_UID_VARIABLE) or "collector",
            kind=environment.get(KIND_VARIABLE) or "",
            http_get=environment.get(HTTP_GET_VARIABLE) or "",
            launcher_directory=Path(text) if (text := environment.get(LAUNCHER_VARIABLE)) else None,
        )


def _seconds(text: str | None, default: float) -> float:
    try:
        seconds = float(text or "")
    except ValueError:
        return default
    return seconds if 0 <= seconds < float("inf") else default
