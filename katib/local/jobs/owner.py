"""What the controller of jobs needs of those that own them: of the trials, and of what collects their metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from katib.local.jobs.checkpoint import TrialCheckpoint
from katib.local.pods.output import Monitor
from katib.local.pods.pulls import PullNews
from katib.runtime.objects import Object


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

    def pod_labels(self, job: Object) -> Mapping[str, str]:
        """Return the labels that the pods of a job have in the store besides their own."""

    def may_start(self, job: Object) -> bool:
        """Return whether a job that was not seen before is to run; no when it is about to be deleted."""

    def may_delete(self, job: Object) -> bool:
        """Return whether a job that outlived its ttlSecondsAfterFinished may go; no while its trial needs it."""

    def stands(self, job: Object) -> None:
        """Take note that a job runs, waits, or waits for something else from now on. Returns at once."""

    def pulled(self, job: Object, news: PullNews) -> None:
        """Take note that an image has to be fetched for a job, or that this has ended. On the loop; returns at once."""

    def retried(self, job: Object, how: str) -> None:
        """Take note how a try of a job failed that no stored status shows: another one failed at once."""

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

    def discard(self, job: Object) -> None:
        """Forget what an earlier run of this job reported: it was cut off and starts from scratch."""

    def job_gone(self, job: Object) -> None:
        """Forget what the last processes of a deleted job reported, if its trial is deleted too.

        What this raises is tried again.
        """
