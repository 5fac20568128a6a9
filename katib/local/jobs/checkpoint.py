"""The step before a trial's own containers: its checkpoint folder is made, empty or as a copy of its parent's.

It is a container of the pod like an init container of the template: a copy of any size delays no other pod, is ended
with the pod, and says on its output why it failed. All pods of one run of a job share the folder, so the first of them
makes it; a run that was cut off leaves no note in the new job directory, and the next one begins from the parent again.
Where the folder is to be kept, the note is beside it, and the next run goes on from what is there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from katib import checkpoint_folders
from katib.local.pods.environment import ContainerCommand
from katib.local.pods.objects import ContainerPlan, Role

CONTAINER_NAME = "katib-checkpoint"
"""Of its log file; the name is not one that a template is likely to have."""

_NOTE = "checkpoint.origin"


@dataclass(frozen=True, slots=True)
class TrialCheckpoint:
    """Where a trial keeps its checkpoint.

    Attributes:
        mount_path: As its template knows it.
        directory: As it is on this machine.
        parent: That of the trial it starts from; None: it starts from nothing.
        is_kept: Whether a run that was cut off, however that was, leaves it to the next one.
    """

    mount_path: str
    directory: Path
    parent: Path | None = None
    is_kept: bool = False

    def note(self, job_directory: Path) -> Path:
        """Return the file that says what the folder was made from."""
        return self.directory.with_name(f".{self.directory.name}.origin") if self.is_kept else job_directory / _NOTE


def checkpoint_container(checkpoint: TrialCheckpoint, job_directory: Path) -> ContainerPlan:
    """Return the container that provides the folder."""
    program = str(Path(checkpoint_folders.__file__).resolve())
    origin = () if checkpoint.parent is None else (str(checkpoint.parent),)
    argv = (
        sys.executable,
        "-I",
        "-S",
        program,
        str(checkpoint.directory),
        str(checkpoint.note(job_directory)),
        *origin,
    )
    command = ContainerCommand(CONTAINER_NAME, argv, {}, "")
    return ContainerPlan(Role.INIT, command, job_directory, restart_on_failure=False, restart_always=False)
