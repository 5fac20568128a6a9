"""All jobs of one machine: a controller for each kind over one loop, one set of leases and one table of ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from katib.api.names import EXPERIMENT_LABEL
from katib.local.jobs.checkpoint import TrialCheckpoint, no_checkpoint
from katib.local.jobs.controller import SETTLE_SECONDS, ControllerTools, JobController, MonitorFactory
from katib.local.jobs.kind import JobKind
from katib.local.jobs.kinds import job_kinds, kinds_by_name
from katib.local.jobs.pod_objects import Labels, PodObjects, label_of_trial
from katib.local.jobs.prepare import (
    Companions,
    Preparation,
    Rewrites,
    Variables,
    no_companions,
    no_rewrites,
    no_variables,
)
from katib.local.jobs.run import Standing
from katib.local.jobs.wiring import PortTable
from katib.local.pods.images import ImageRuntime
from katib.local.pods.log_file import LogLimits
from katib.local.pods.loop import Loop
from katib.local.pods.pod import PodTools
from katib.local.pods.pulls import ImagePulls, PullNews
from katib.local.pods.records import Delays
from katib.local.pods.tokens import Capacity, Table, Tokens
from katib.local.processes.client import Processes
from katib.runtime.clock import Clock, SteadyTime, SystemClock
from katib.runtime.informer import Informer
from katib.runtime.manager import SYNC_TIMEOUT_SECONDS
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.runtime.shared_thread import SharedThread


def _always(_job: Object) -> bool:
    return True


def _never(_job: Object) -> bool:
    return False


def _nothing(_job: Object) -> None:
    """Do nothing about a job."""


def _holder(job: Object, labels: Labels) -> str:
    experiment = labels(job).get(EXPERIMENT_LABEL)
    return f"experiment {experiment}" if experiment else f"job {Key.of(job).name}"


class LocalJobRunner:
    """Runs the jobs of a store as local processes.

    Args:
        store: Where the jobs are.
        processes: Starts processes; its owner starts it before us and stops it after us.
        monitors: Makes the readers of the trials' output.
        root: Directory of the pods' directories: `root/<namespace>/<job>/<pod>/`.
        workspace: For a job: working directory of containers that name none; the user's files are found there.
        kinds: Which jobs; None: of the kinds that need nothing that is stored.
        clock: Time.
        capacity: What pods may lease; by default what the machine has.
        delays: How long failures make wait.
        rewrites: Paths of the containers that lie in the pod's directory.
        variables: Further variables of the containers' environment.
        companions: Further containers of a pod.
        checkpoint: Where the trial of a job keeps its checkpoint.
        images: Runs containers in their images; None: they are processes of this machine.
        visible: Files of ours that a variable of a container may name.
        needs_machine: Whether the pods of a job call the engine, or it calls them, at an address of this machine.
        labels: Labels that the pods of a job have in the store besides their own.
        inherited: What that environment starts from; by default that of this process.
        may_start: Whether a job that was not seen before is to run; no when it is about to be deleted.
        may_delete: Whether a job that outlived its ttlSecondsAfterFinished may go; no while its trial needs it.
        pulled: Told of a job when an image has to be fetched for it, and when that has ended; returns at once.
        retried: Told of a job how a try of it failed that no stored status shows: another one failed at once.
        gone: Told of a job that was deleted before its end, once none of its processes is left; what this raises is
            tried again.
        stands: Told of a job that runs, waits, or waits for something else from now on; returns at once.
        settle_seconds: How long a passing status must hold before it is written.
        sync_timeout_seconds: How long the store may take to list the jobs.
        log_limits: How much of the output of a container is kept.
        jobs: Shows the jobs of each kind; the one who made them starts and stops them. None: they are followed here.
        thread: Where the jobs are reconciled, between the turns of others; None: on threads of their own.
        leases: What other engines hold of this machine; None: there are none.
    """

    def __init__(
        self,
        store: ObjectStore,
        processes: Processes,
        monitors: MonitorFactory,
        root: Path,
        *,
        workspace: Callable[[Object], Path],
        kinds: tuple[JobKind, ...] | None = None,
        clock: Clock | None = None,
        capacity: Capacity | None = None,
        delays: Delays | None = None,
        rewrites: Rewrites = no_rewrites,
        variables: Variables = no_variables,
        companions: Companions = no_companions,
        checkpoint: Callable[[Object], TrialCheckpoint | None] = no_checkpoint,
        images: ImageRuntime | None = None,
        visible: tuple[Path, ...] = (),
        needs_machine: Callable[[Object], bool] = _never,
        labels: Labels = label_of_trial,
        inherited: Mapping[str, str] | None = None,
        may_start: Callable[[Object], bool] = _always,
        may_delete: Callable[[Object], bool] = _always,
        pulled: Callable[[Object, PullNews], None] = lambda _job, _news: None,
        retried: Callable[[Object, str], None] = lambda _job, _how: None,
        gone: Callable[[Object], None] = _nothing,
        stands: Callable[[Object], None] = _nothing,
        settle_seconds: float = SETTLE_SECONDS,
        sync_timeout_seconds: float = SYNC_TIMEOUT_SECONDS,
        log_limits: LogLimits | None = None,
        jobs: Mapping[Kind, Informer[Object]] | None = None,
        thread: SharedThread | None = None,
        leases: Table | None = None,
    ) -> None:
        clock, capacity = clock or SystemClock(), capacity or Capacity.of_machine()
        inherited = os.environ if inherited is None else inherited
        self._loop = Loop(clock)
        steady, tokens = SteadyTime(clock), Tokens(capacity, leases, self._loop.call_later, clock)
        pulls = None if images is None else ImagePulls(images, processes, self._loop, clock)
        pods = PodTools(
            self._loop, processes, tokens, clock, steady, delays or Delays(), images, pulls, log_limits or LogLimits()
        )
        self._objects = PodObjects(store, clock, pods.steady, labels=labels, thread=thread)
        tools = ControllerTools(
            store=store,
            pods=pods,
            monitors=monitors,
            preparation=Preparation(
                store,
                root,
                workspace,
                capacity,
                rewrites,
                variables,
                dict(inherited),
                companions,
                checkpoint,
                images=images,
                visible=visible,
                needs_machine=needs_machine,
                holder=lambda job: _holder(job, labels),
            ),
            objects=self._objects,
            ports=PortTable(),
            may_start=may_start,
            may_delete=may_delete,
            pulled=pulled,
            retried=retried,
            gone=gone,
            stands=stands,
            settle_seconds=settle_seconds,
            sync_timeout_seconds=sync_timeout_seconds,
            thread=thread,
        )
        self._controllers = {
            name: JobController(kind, tools, None if jobs is None else jobs[name])
            for name, kind in kinds_by_name(job_kinds() if kinds is None else kinds).items()
        }

    def start(self) -> None:
        """Start; jobs that an earlier engine left unfinished begin anew. What fails to start leaves no thread behind.

        Raises:
            UnavailableError: The store does not answer.
        """
        self._loop.start()
        with ExitStack() as stack:
            stack.callback(self._loop.stop)
            self._objects.start()
            stack.callback(self._objects.stop)
            for controller in self._controllers.values():
                controller.start()
                stack.callback(controller.stop)
            stack.pop_all()

    def stop(self, grace_seconds: float = 5.0) -> None:
        """End all pods, politely, then after the grace period firmly; their jobs stay unfinished and resume later."""
        for controller in self._controllers.values():
            controller.begin_stop(grace_seconds)
        for controller in self._controllers.values():
            controller.finish_stop(grace_seconds)
        self._objects.stop()
        self._loop.stop()

    def waiting_reason(self, namespace: str, name: str) -> str:
        """Return why no pod of a job runs now; empty when one does or nothing is known. For any thread."""
        reasons = (controller.waiting_reason(namespace, name) for controller in self._controllers.values())
        return next(filter(None, reasons), "")

    def standing(self, key: Key) -> Standing | None:
        """Return whether a job runs and what it waits for, as it has held for a moment; None for one that is not known.

        For any thread.
        """
        return next((s for c in self._controllers.values() if (s := c.standing(key)) is not None), None)

    def pulling(self, key: Key) -> str:
        """Return which image is fetched for a job now; empty when none is. For any thread."""
        return next(filter(None, [controller.pulling(key) for controller in self._controllers.values()]), "")

    def runs(self, key: Key) -> bool:
        """Return whether a job runs, or ran and its processes have their time to end. For any thread."""
        return any(controller.runs(key) for controller in self._controllers.values())

    def wait_until_gone(self, key: Key, timeout_seconds: float) -> bool:
        """Wait until no process of a deleted job is left; False when the time is up or we stop. For any thread."""
        found = next((controller for controller in self._controllers.values() if controller.runs(key)), None)
        return found is None or found.wait_until_gone(key, timeout_seconds)
