"""What a container is to do, decided before its pod starts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from katib.local.pods.environment import ContainerCommand
from katib.local.pods.images import ImageRun


class Role(Enum):
    """What a container is to its pod."""

    INIT = auto()
    SIDECAR = auto()
    MAIN = auto()


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """What a container is to do.

    Attributes:
        role: What it is to its pod.
        command: What to execute.
        directory: Where.
        restart_on_failure: Whether it is started again when it failed.
        restart_always: Whether it is started again whenever it ends.
        volumes: Directories outside of the pod's own that must exist.
        image: What is run by a runtime in place of the command; None: the command is a process of this machine.
    """

    role: Role
    command: ContainerCommand
    directory: Path
    restart_on_failure: bool
    restart_always: bool
    volumes: tuple[Path, ...] = ()
    image: ImageRun | None = None

    @property
    def is_main(self) -> bool:
        """Whether it is one of the pod's main containers, and no init container or sidecar."""
        return self.role is Role.MAIN
