"""What the controller of jobs is given: a machine with its limits, the trials that own jobs, how metrics get out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from katib.engine.runtime.clock import Clock, SteadyTime
from katib.engine.runtime.objects import Object
from katib.model.files import checkpoint_folders
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.images import ImageRuntime, NodeImages
from katib.places.machine.pods.leases import LeaseTable
from katib.places.machine.pods.log_file import LogLimits
from katib.places.machine.pods.loop import Loop
from katib.places.machine.pods.objects import ContainerPlan, Role
from katib.places.machine.pods.output import Monitor
from katib.places.machine.pods.place import PodPlace
from katib.places.machine.pods.pulls import PullNews
from katib.places.machine.pods.records import Delays
from katib.places.machine.pods.tokens import Capacity
from katib.places.machine.processes.client import Processes

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


SETTLE_SECONDS = 0.1
"""How long a status that is not final must hold before it is worth a write: a tiny trial is over by then, on a machine
that is busy, too. A write costs a turn of every watcher of jobs, and none of them needs it."""


def always_inherits(_annotations: Mapping[str, str]) -> bool:
    """Return that pods start from our environment."""
    return True


PlaceMaker = Callable[[Loop, SteadyTime], PodPlace[Any]]
"""Returns the pods of a site, from the loop and the time of all pods."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What pods run on.

    Attributes:
        processes: Starts processes; its owner starts it before the jobs and stops it after them.
        clock: Time.
        capacity: What pods may lease.
        images: Runs containers in their images; None: they are processes of this machine.
        leases: What other engines hold of this machine; None: there are none.
        place: Makes where pods run otherwise than here, from the loop and the time of all pods; None: they run here.
        node_images: There, what a node executes for an image that is to run, our environment and a container of a
            template; None: the command is a process of the node.
        inherits: Whether a pod with these annotations starts from our environment. Raises InvalidError.
    """

    processes: Processes
    clock: Clock
    capacity: Capacity = field(default_factory=Capacity.of_machine)
    images: ImageRuntime | None = None
    leases: LeaseTable | None = None
    place: PlaceMaker | None = None
    node_images: NodeImages | None = None
    inherits: Callable[[Mapping[str, str]], bool] = always_inherits

    @property
    def runs_images(self) -> bool:
        """Whether containers run in their images."""
        return self.images is not None or self.node_images is not None


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings and limits of all jobs.

    Attributes:
        root: Directory of the pods' directories: `root/<namespace>/<job>/<pod>/`.
        inherited: What the environment of processes starts from.
        visible: Files of ours that a variable of a container may name.
        delays: How long failures make wait.
        log_limits: How much of the output of a container is kept.
        settle_seconds: How long a passing status must hold before it is written.
        reserve: A file that takes room for what is stored about the end of a pod that has filled the disk.
        is_lost: Returns whether the root was moved or removed. Then jobs stay as they are, and nothing is written.
    """

    root: Path
    inherited: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    visible: tuple[Path, ...] = ()
    delays: Delays = field(default_factory=Delays)
    log_limits: LogLimits = field(default_factory=LogLimits)
    settle_seconds: float = SETTLE_SECONDS
    reserve: Path | None = None
    is_lost: Callable[[], bool] = lambda: False


class Provision(NamedTuple):
    """What a trial gives the pods of its job.

    Attributes:
        workspace: The working directory of containers that name none; the user's files are found there.
        checkpoint: Where it keeps its checkpoint; None where it keeps none.
        experiment: To which experiment it belongs; empty for a job without one.
    """

    workspace: Path
    checkpoint: TrialCheckpoint | None = None
    experiment: str = ""


class Collection(NamedTuple):
    """What the collection of metrics puts into a pod.

    Attributes:
        variables: Further variables of the containers' environment.
        rewrites: Absolute path prefixes as containers know them, and the directory of the pod that stands for each.
        companions: Containers that run beside those of the template, and where each is described. They start before
            those of the template and are ended after them.
    """

    variables: Mapping[str, str]
    rewrites: Mapping[str, str]
    companions: Sequence[tuple[str, Mapping[str, Any]]] = ()


class JobOwner(Protocol):
    """The trial of each job: where it runs, whether it may, and what is reported of it."""

    def provision(self, job: Object) -> Provision:
        """Return what the pods of a job are given."""

    def placement(self, job: Object, path: str) -> Mapping[str, str]:
        """Return annotations that say where the pods of the template at a path run, as its experiment has them now."""

    def pod_labels(self, job: Object) -> Mapping[str, str]:
        """Return the labels that the pods of a job have in the store besides their own."""

    def may_start(self, job: Object) -> bool:
        """Return whether a job that was not seen before is to run; no when it is about to be deleted, or waits."""

    def is_interrupted(self, job: Object) -> bool:
        """Return whether a job waits for another engine, which runs it."""

    def is_stopped(self, job: Object) -> bool:
        """Return whether nothing of a job is to begin that has not begun."""

    def may_delete(self, job: Object) -> bool:
        """Return whether a job that outlived its ttlSecondsAfterFinished may go; no while its trial needs it."""

    def stands(self, job: Object) -> None:
        """Take note that a job runs, waits, or waits for something else from now on. Returns at once."""

    def pulled(self, job: Object, news: PullNews) -> None:
        """Take note that an image has to be fetched for a job, or that this has ended. On the loop; returns at once."""

    def retried(self, job: Object, how: str) -> None:
        """Take note how a try of a job failed that no stored status shows: another one failed at once."""

    def went_on(self, job: Object, until: float | None) -> None:
        """Take note that processes of a job ran on without an engine, and when they ended; None while they run."""

    def gone(self, job: Object) -> None:
        """Take note that none of the processes is left of a job that was deleted before its end."""


class PodMetrics(Protocol):
    """How metrics get out of the pods of a job: what their containers find, and who reads what they write."""

    def collection(self, job: Object, pod_labels: Mapping[str, str]) -> Collection:
        """Return what is put into a pod with these labels."""

    def needs_machine(self, job: Object) -> bool:
        """Return whether the pods call the engine, or it calls them, at an address of this machine."""

    def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> Monitor | None:
        """Return a monitor for a container that is about to start; None when its output is not read.

        Args:
            job: The job object as stored; its controller owner reference names the Trial.
            pod_labels: Labels of the pod, to distinguish primary pods from others.
            container: Name of the container, to distinguish the primary container from others.
            directory: The pod's working directory on disk.
        """

    def may_outlive(self, job: Object) -> bool:
        """Return whether nothing that the pods of a job report is lost while no engine runs."""

    def resume(self, job: Object) -> None:
        """Prepare for pods that went on without an engine: their monitors find everything that they reported again."""

    def go_on(self, job: Object, cut_off: Path | None = None) -> None:
        """Keep what an earlier run of this job reported: the next one continues it from a checkpoint.

        What that reports of a step again takes the place of what is there of this step and of later ones.

        Args:
            job: The job object as stored.
            cut_off: Of a run that an end of the engine cut off, where its pods have their directories: what they wrote
                in the last moment before is stored first.
        """

    def try_again(self, job: Object, failed: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> None:
        """Have what is reported next set aside what failed tries reported, unless it goes on from a checkpoint.

        Args:
            job: The job object as stored.
            failed: Labels of its pods that failed.
            others: Of its pods that run or succeeded.
        """

    def discard(self, job: Object) -> None:
        """Forget what an earlier run of this job reported: it was cut off and starts from scratch."""

    def job_gone(self, job: Object) -> None:
        """Forget what the last processes of a deleted job reported, if its trial is deleted too.

        What this raises is tried again.
        """
