"""The interfaces of the controller of jobs: a machine with its limits, the owners of jobs, and metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from katib.engine.runtime.clock import Clock, SteadyTime
from katib.engine.runtime.objects import Object
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.log_file import LogLimits
from katib.places.machine.pods.loop import Loop
from katib.places.machine.pods.output import Monitor
from katib.places.machine.pods.place import PodPlace
from katib.places.machine.pods.plans import ContainerPlan, ContainerRole
from katib.places.machine.pods.records import Delays
from katib.places.machine.pods.requests import Capacity
from katib.places.machine.processes.client import Processes

if TYPE_CHECKING:
    from katib.model.loadable import Deferred
    from katib.places.machine.pods.images import ImageRuntime, NodeImages
    from katib.places.machine.pods.leases import LeaseTable
    from katib.places.machine.pods.pulls import PullNews

CONTAINER_NAME = "katib-checkpoint"
"""Of its log file; the name is not one that a template is likely to have."""

_NOTE = "checkpoint.origin"


@dataclass(frozen=True, slots=True)
class TrialCheckpoint:
    """The checkpoint folder of a trial.

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
        """Return the file that names the origin of the folder."""
        return self.directory.with_name(f".{self.directory.name}.origin") if self.is_kept else job_directory / _NOTE


def checkpoint_container(checkpoint: TrialCheckpoint, job_directory: Path) -> ContainerPlan:
    """Return the container that provides the folder."""
    from katib.model.files import checkpoint_folders

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
    return ContainerPlan(ContainerRole.INIT, command, job_directory, restart_on_failure=False, restart_always=False)


SETTLE_SECONDS = 0.1
"""How long a status that is not final must hold before it is worth a write: a tiny trial is over by then, on a machine
that is busy, too. A write costs a turn of every watcher of jobs, without need."""


def always_inherits(_annotations: Mapping[str, str]) -> bool:
    """Return that pods start from our environment."""
    return True


PlaceMaker = Callable[[Loop, SteadyTime], PodPlace[Any]]
"""Returns the pods of a site, from the loop and the time of all pods."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that pods run on.

    Attributes:
        processes: Starts processes; its owner starts it before the jobs and stops it after them.
        capacity: The resources that pods may lease.
        images: Runs containers in their images; None: they are processes of this machine.
        leases: The leases of other engines on this machine; None: there are no others.
        place: Makes the place of pods, such as Slurm, from their loop and clock; None: they run here.
        node_images: At that place, returns the command of a node for an image, our environment and a container of a
            template; None: the command is a process of the node.
        inherits: Whether a pod with these annotations starts from our environment. Raises InvalidError.
    """

    processes: Processes
    clock: Clock
    capacity: Capacity = field(default_factory=Capacity.of_machine)
    images: ImageRuntime | None = None
    leases: Deferred[LeaseTable] | None = None
    place: PlaceMaker | None = None
    node_images: NodeImages | None = None
    inherits: Callable[[Mapping[str, str]], bool] = always_inherits

    @property
    def runs_images(self) -> bool:
        return self.images is not None or self.node_images is not None


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings and limits of all jobs.

    Attributes:
        root: Directory of the pods' directories: `root/<namespace>/<job>/<pod>/`.
        inherited: The base of the environment of processes.
        visible: Files of ours that a variable of a container may name.
        delays: How long failures make wait.
        log_limits: How much of the output of a container is kept.
        settle_seconds: How long a passing status must hold before it is written.
        reserve: A file that reserves room for the record of a pod that has filled the disk.
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
    """The provision of a trial for the pods of its job.

    Attributes:
        workspace: The working directory of containers that name none; the user's files are found there.
        experiment: To which experiment it belongs; empty for a job without one.
    """

    workspace: Path
    checkpoint: TrialCheckpoint | None = None
    experiment: str = ""


class Collection(NamedTuple):
    """The additions of metrics collection to a pod.

    Attributes:
        variables: Further variables of the containers' environment.
        rewrites: Absolute path prefixes as containers know them, and the directory of the pod that stands for each.
        companions: Containers beside those of the template, each with its path. They start before
            those of the template and are ended after them.
    """

    variables: Mapping[str, str]
    rewrites: Mapping[str, str]
    companions: Sequence[tuple[str, Mapping[str, Any]]] = ()


class JobOwner(Protocol):
    """The trial of each job: its place, its permission to run, and reports about it."""

    def provision(self, job: Object) -> Provision:
        """Return the provision for the pods of a job."""

    def placement(self, job: Object, path: str) -> Mapping[str, str]:
        """Return the annotations for the placement of the pods of a template, as its experiment has them now."""

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
        """Take note that the last process has ended of a job that was deleted before its end."""


class PodMetrics(Protocol):
    """The metrics of the pods of a job: variables of their containers, and monitors of their output."""

    def collection(self, job: Object, pod_labels: Mapping[str, str]) -> Collection:
        """Return the additions to a pod with these labels."""

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
        """Keep the readings of an earlier run of this job: the next one continues from a checkpoint.

        A repeated step replaces the readings of this step and of later ones.

        Args:
            cut_off: The directory of the pods of a run that was cut off by an end of the engine: their output
                in the last moment before is stored first.
        """

    def try_again(self, job: Object, failed: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> None:
        """Let the next readings replace those of failed tries, unless the next try continues from a checkpoint.

        Args:
            failed: Labels of its pods that failed.
            others: Of its pods that run or succeeded.
        """

    def discard(self, job: Object) -> None:
        """Discard the readings of an earlier run of this job: it was cut off and starts from scratch."""

    def job_gone(self, job: Object) -> None:
        """Discard the readings of the last processes of a deleted job, if its trial is deleted too.

        After an error, the call is repeated.
        """
