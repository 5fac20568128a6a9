"""What the controller of jobs needs of those that own them: of the trials, and of what collects their metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from katib.local.jobs.checkpoint import TrialCheckpoint
from katib.local.pods.monitor import Monitor
from katib.local.pods.pulls import PullNews
from katib.runtime.objects import Object


class JobOwner(Protocol):
    """The trial of each job: where it runs, whether it may, and what is reported of it."""

    def workspace(self, job: Object) -> Path:
        """Return the working directory of containers that name none; the user's files are found there."""

    def checkpoint(self, job: Object) -> TrialCheckpoint | None:
        """Return where the trial keeps its checkpoint; None where it keeps none."""

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

    def variables(self, job: Object) -> Mapping[str, str]:
        """Return further variables of the containers' environment."""

    def rewrites(self, job: Object) -> Mapping[str, str]:
        """Return absolute path prefixes as containers know them, and the directory of the pod that stands for each."""

    def companions(self, job: Object, pod_labels: Mapping[str, str]) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Return containers that run beside those of the template, and where each is described.

        They start before those of the template and are ended after them.
        """

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

    def go_on(self, job: Object) -> None:
        """Keep what an earlier run of this job reported: the next one continues it from a checkpoint.

        What that reports of a step again takes the place of what is there of this step and of later ones.
        """

    def discard(self, job: Object) -> None:
        """Forget what an earlier run of this job reported: it was cut off and starts from scratch."""

    def job_gone(self, job: Object) -> None:
        """Forget what the last processes of a deleted job reported, if its trial is deleted too.

        What this raises is tried again.
        """
