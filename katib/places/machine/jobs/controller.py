"""The controller of all kinds of jobs on this machine: the work of operators and the kubelet on a cluster.

It observes, asks the kind of the job for a plan (`katib.places.machine.jobs.kind`), and applies it.

Threads: on the shared one informers follow the store and jobs are reconciled, the loop's lives with the pods. A pod
never touches the store and no reconcile waits for a pod: pods change their record and ask for their job to be
reconciled.

Few writes: a status that is not final is written when it has held for a moment, so a job that ends at once is written
once. A crash between the start of a process and that write is noticed by the pod's note, which is begun first: a job
that is not over and has a pod with a note, or has a start time, was cut off. It starts from scratch, without its
earlier metrics, and no failure is counted.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from katib.engine.controllers.job_caches import JobCaches
from katib.engine.runtime.clock import SteadyTime
from katib.engine.runtime.controller import DONE, Controller, ReconcileResult
from katib.engine.runtime.informer import InformerEvent
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.runtime.shared_thread import SharedThread
from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import ConflictError, InvalidError, KatibError, NotFoundError, UnavailableError
from katib.model.job_kinds import has_several_pods, is_suspended, retry_words, suspended_at, with_suspension
from katib.model.loadable import Deferred, Loadable
from katib.model.names import HELD_WORDS, METRICS_REPORT_ANNOTATION
from katib.model.types import format_time
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.conditions import earliest, end_of
from katib.places.machine.jobs.dependencies import JobOwner, JobSettings, Machine, PodMetrics
from katib.places.machine.jobs.kind import JobKind, JobTime, ObservedJob, Plan, PodStart
from katib.places.machine.jobs.networks import LocalWiring, NamedWiring, PlacedWiring, PortTable, network_of
from katib.places.machine.jobs.pod_objects import PodObjects
from katib.places.machine.jobs.prepare import (
    Preparation,
    begun_by,
    clear_directory,
    impossible_pod,
    prepare_pod,
)
from katib.places.machine.jobs.run import JobRun, JobStanding, RunNote, decoded, is_plain
from katib.places.machine.pods.environment import HOST_NETWORK
from katib.places.machine.pods.loop import Loop
from katib.places.machine.pods.place import AnyPod, KeptGroup, PodListener, PodPlace
from katib.places.machine.pods.plans import PodPlan, begin_note, pulling_words
from katib.places.machine.pods.pod import MachinePods
from katib.places.machine.pods.records import RESUMED, PodPhase, PodRecord
from katib.places.machine.pods.tools import Evictions, PodTools
from katib.places.machine.processes.peek import PipePeeker

if TYPE_CHECKING:
    from katib.places.machine.pods.pulls import ImagePulls
    from katib.places.machine.pods.tokens import Tokens

_PULLS: Final[Loadable[type[ImagePulls]]] = Loadable("katib.places.machine.pods.pulls:ImagePulls")
_TOKENS: Final[Loadable[type[Tokens]]] = Loadable("katib.places.machine.pods.tokens:Tokens")

RESTARTED_ANNOTATION = "katib.kubeflow.org/started-anew"
"""On a job: that it was cut off by an end of the engine, and when it was started again from scratch."""

_STORING_SECONDS = 1.0
"""How long a stop waits for readings when no process is left. A job whose readings cannot be stored, as while the disk
is full, begins again at the next start, and its readings with it."""

_TTL_RETRY_SECONDS = 1.0

_RECORD = attrgetter("record")

_log = logging.getLogger(__name__)


def _open_peek() -> PipePeeker | None:
    """Return a reader of pipes; None if the kernel does not allow it, and pipes are read directly."""
    if sys.platform != "linux":
        return None
    try:
        return PipePeeker()
    except OSError as error:
        _log.warning("Output may lack its end when the engine is killed", extra={"cause": error.strerror})
        return None


class JobController:
    """Runs the jobs of a store as local processes. Stopping twice, or without a start, is fine.

    Args:
        store: The store with the jobs.
        machine: The machine that they run on.
        settings: Settings and limits of all jobs.
        kinds: Which jobs.
        jobs: Shows the jobs of these kinds; its owner starts it before us and stops it after us.
        owner: The trials that the jobs belong to.
        metrics: How metrics get out of pods.
        thread: Reconciles the jobs, between the turns of others.
    """

    def __init__(
        self,
        store: ObjectStore,
        machine: Machine,
        settings: JobSettings,
        kinds: Mapping[Kind, JobKind],
        jobs: JobCaches,
        owner: JobOwner,
        metrics: PodMetrics,
        thread: SharedThread,
    ) -> None:
        clock = machine.clock
        self._machine = machine
        self._store = store
        self._settings = settings
        self._kinds = kinds
        self._owner = owner
        self._metrics = metrics
        self._clock = clock
        self._loop = Loop(clock)
        self._pods = PodTools(
            self._loop,
            machine.processes,
            machine.capacity,
            Deferred(self._open_tokens),
            clock,
            SteadyTime(clock),
            settings.delays,
            None if machine.images is None else _PULLS.load()(machine.images, machine.processes, self._loop, clock),
            settings.log_limits,
            _open_peek(),
            Evictions(settings.reserve),
        )
        self._place: PodPlace[Any] = MachinePods(self._pods)
        if machine.place is not None:
            self._place = machine.place(self._loop, self._pods.steady)
        self._preparation = Preparation(store, machine, settings, owner, metrics)
        self._objects = PodObjects(store, clock, self._pods.steady, owner.pod_labels, thread)
        self._ports = PortTable()
        self._present: dict[Key, dict[str, Object]] = {}  # the jobs in the caches, by their uids
        self._runs: dict[Key, JobRun] = {}
        self._held: dict[Key, KeptGroup] = {}  # what runs elsewhere of jobs that are for another engine
        self._ended = threading.Condition()
        self._stopping = False
        self._queue: WorkQueue[Key] = WorkQueue(clock)
        self._controller = Controller("local-jobs", self._reconcile, self._queue, thread=thread)
        jobs.add_handler(self._job_changed)

    def _open_tokens(self) -> Tokens:
        leases = self._machine.leases
        table = None if leases is None else leases.get()
        return _TOKENS.load()(self._machine.capacity, table, self._loop.call_later, self._clock)

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start; jobs that an earlier engine left unfinished continue, or are restarted if their pods have ended.

        Of a job that is for another engine, processes of this machine end, and pods elsewhere are left.
        """
        self._loop.start()
        unwanted = [group for group in list(self._place.kept()) if not self._adopt(group)]
        if self._machine.place is not None:
            self._held = {key: group for group in unwanted if (key := self._held_key(group)) is not None}
        self._place.end([group for group in unwanted if group not in self._held.values()])
        self._objects.start()
        self._controller.start()

    def stop(
        self, grace_seconds: float = 5.0, *, leaves: bool = False, leaves_checkpointed: bool = True
    ) -> tuple[int, int]:
        """End all pods, politely, then after the grace period firmly; their jobs stay unfinished and resume later.

        Args:
            grace_seconds: The grace period; if a trial keeps its checkpoint, at least that of its pods.
            leaves: Whether pods that can outlive this engine continue.
            leaves_checkpointed: Whether they do if their trial keeps a checkpoint to continue from.

        Returns:
            How many jobs end whose trials keep a checkpoint, and how many continue.
        """
        if self._stopping:
            return 0, 0
        self._stopping = True
        self._announce_end()
        self._controller.stop()
        self._write_what_ended()
        active = [run for run in self._runs.values() if run.unfinished_pods()]
        left = [run for run in active if leaves and self._place.is_kept(run.uid)]
        for run in left if not leaves_checkpointed else ():
            if self._keeps_checkpoint(run.job):
                run.is_interrupted = True
                run.stopped.update(pod.record.name for pod in run.pods)
                self._keep(run)
        left = [run for run in left if not run.is_interrupted]
        ending = [run for run in active if run not in left]
        graces = {run.uid: self._grace_of(run, grace_seconds) for run in ending}
        pods = [pod for run in ending for pod in run.unfinished_pods()]
        for run in ending:
            for pod in run.unfinished_pods():
                self._loop.call_soon(partial(pod.stop, graces[run.uid]))
        longest = max(graces.values(), default=grace_seconds) + 5
        with self._ended:
            self._ended.wait_for(lambda: all(p.record.is_finished or p.is_storing for p in pods), longest)
            self._ended.wait_for(lambda: all(p.record.is_finished for p in pods), _STORING_SECONDS)
        for run in ending:
            if run.is_interrupted and not run.unfinished_pods():
                self._place.forget(run.uid)
        self._objects.stop()
        self._place.close()
        self._loop.stop()
        if self._pods.peek is not None:
            self._pods.peek.close()
        return sum(self._keeps_checkpoint(run.job) for run in ending), len(left)

    def _grace_of(self, run: JobRun, least: float) -> float:
        """Return how long the pods of a job have to end: their own grace period if they keep a checkpoint."""
        if not self._keeps_checkpoint(run.job):
            return least
        return max([least, *(pod.plan.grace_seconds for pod in run.unfinished_pods())])

    def _keeps_checkpoint(self, job: Object) -> bool:
        """Return whether a trial continues from its checkpoint after any interruption."""
        checkpoint = self._owner.provision(job).checkpoint
        return checkpoint is not None and checkpoint.is_kept

    def look(self, key: Key) -> None:
        """Look at a job again: it may start now. For any thread."""
        self._queue.add(key)

    # --- pods that went on without an engine --------------------------------------------------------------------------

    def _adopt(self, kept: KeptGroup) -> bool:
        """Go on with a job whose pods outlived their engine; False when it has ended or does not need them any more."""
        note = decoded(kept.note)
        if note is None or note.job_kind not in self._kinds:
            return False
        try:
            job = self._store.get(note.job_kind, note.key)
            if (
                job["metadata"]["uid"] != note.uid
                or "deletionTimestamp" in job["metadata"]
                or not self._owner.may_start(job)
            ):
                return False
            run = self._begin_run(job)
            if run.is_over or run.network != HOST_NETWORK:
                return False
            self._metrics.resume(job)
        except (NotFoundError, UnavailableError):
            return False
        run.is_kept, run.memory, run.stopped = self._place.keeps, note.memory, set(note.stopped)
        run.is_interrupted = note.interrupted
        run.started_at = None if note.began is None else self._pods.steady.at(note.began)
        run.wiring.restore(note.addresses)
        run.pods = [self._new_pod(note.key, run, plan) for plan in note.pods]
        self._runs[note.key] = run
        ends = [program.ended for program in kept.programs]
        self._owner.went_on(job, max(ends) if ends and all(ends) else None)
        self._loop.call_soon(partial(self._place.resume, run.pods, kept, note.stopped))
        self._objects.follow(run.job, run.pods)
        return True

    def _held_key(self, kept: KeptGroup) -> Key | None:
        """Return the job that a group belongs to if it is for another engine; else None."""
        if (note := decoded(kept.note)) is None:
            return None
        with contextlib.suppress(NotFoundError):
            job = self._store.get(note.job_kind, note.key)
            if job["metadata"]["uid"] == note.uid and self._owner.is_interrupted(job):
                return note.key
        return None

    def _release_held(self, key: Key, job: Object | None) -> None:
        """End the pods elsewhere of a deleted job; follow them once the job is for this engine."""
        if job is not None and self._owner.is_interrupted(job):
            return
        if (kept := self._held.pop(key, None)) is not None and (job is None or not self._adopt(kept)):
            self._place.end([kept])

    def _keep(self, run: JobRun) -> None:
        """Leave a note with which the next engine can continue a job."""
        if not run.is_kept or not run.pods or not is_plain(run.memory):
            return
        now = (
            *(run.started_at, dict(run.memory), len(run.pods)),
            *(frozenset(run.stopped), run.is_interrupted, run.wiring.ports()),
        )
        if now != run.kept:
            run.kept = now
            note = RunNote.of(run, self._pods.clock.monotonic(), self._pods.steady.now())
            self._place.note(run.uid, note.encode())

    def _write_what_ended(self) -> None:
        """Conclude jobs whose last pod ended while we stopped, so that they are not run again."""
        for key, run in list(self._runs.items()):
            if run.pods and not run.unfinished_pods():
                with contextlib.suppress(KatibError):  # the next start runs it again
                    self._reconcile(key)

    # --- question -----------------------------------------------------------------------------------------------------

    def waiting_reason(self, namespace: str, name: str) -> str:
        """Return why no pod of a job runs now; empty when one does or nothing is known. For any thread."""
        run = self._runs.get(Key(namespace, name))
        return "" if run is None else run.standing.waiting

    def runs_program(self, key: Key) -> bool:
        """Return whether a program of a job runs, whatever is stored about that. For any thread."""
        run = self._runs.get(key)
        return run is not None and any(pod.record.is_running for pod in list(run.pods))

    def disk_full(self) -> None:
        """End the pod that has filled the disk, if one has. For any thread that may wait for file systems."""
        evictions = self._pods.evictions
        self._loop.call_soon(partial(evictions.disk_full, evictions.files()))

    def standing(self, key: Key) -> JobStanding | None:
        """Return the standing of a job that has held for a moment; None for an unknown job.

        That of a suspended job is the current one: it keeps its trial's place while a program of it runs. An image that
        is fetched for it now comes before anything else. For any thread.
        """
        run = self._runs.get(key)
        if run is None:
            return None
        if suspended_at(self._present.get(key, {}).get(run.uid, run.job)):
            return run.standing
        for pod in run.pods:
            if (record := pod.record).pulling and not record.is_finished:
                return run.reported._replace(waiting=pulling_words(record.pulling))
        return run.reported

    def runs(self, key: Key) -> bool:
        """Return whether a job runs, or ran and its processes have their time to end. For any thread."""
        return key in self._runs

    def wait_until_gone(self, key: Key, timeout_seconds: float) -> bool:
        """Wait until no process of a deleted job is left; False when the time is up or we stop. For any thread."""
        run = self._runs.get(key)
        if run is None:
            return True
        with self._ended:
            self._ended.wait_for(lambda: self._stopping or self._runs.get(key) is not run, timeout_seconds)
        return self._runs.get(key) is not run

    # --- reconciling --------------------------------------------------------------------------------------------------

    def _job_changed(self, event: InformerEvent[Object]) -> None:
        jobs = self._present.setdefault(event.key, {})
        if event.new is not None:
            jobs[event.new["metadata"]["uid"]] = event.new
        elif event.old is not None:
            jobs.pop(event.old["metadata"]["uid"], None)
        if not jobs:
            del self._present[event.key]
        self._queue.add(event.key)

    def _reconcile(self, key: Key) -> ReconcileResult:
        if self._settings.is_lost():  # programs that miss their files have not failed
            return DONE
        # Pods have their directories under the name of their job: one of each name runs, of any kind.
        jobs, run = self._present.get(key, {}), self._runs.get(key)
        job = next(iter(jobs.values()), None) if run is None else jobs.get(run.uid)
        if job is not None and "deletionTimestamp" in job["metadata"]:
            job = None
        if run is None and key in self._held:
            self._release_held(key, job)
            run = self._runs.get(key)
        if job is None or (run.is_interrupted if run is not None else not self._owner.may_start(job)):
            self._objects.forget(key)
            self._queue.cancel(key)
            return DONE if run is None else self._let_go(key, run)
        try:
            if run is None:
                run = self._runs[key] = self._take_up(job)
            run.observe(job)
            result = self._apply(key, run)
        except NotFoundError:
            return DONE  # deleted this moment; the cache will say so
        if run.is_over and end_of(job.get("status") or {}):
            del self._runs[key]
            self._place.forget(run.uid)
            self._announce_end()
        return result

    def _take_up(self, job: Object) -> JobRun:
        """Begin to run a job, from scratch when an earlier engine had begun."""
        run = self._begin_run(job)
        if run.is_over:
            return run
        keeps = self._place.keeps and run.network == HOST_NETWORK and self._machine.images is None
        run.is_kept = keeps and self._metrics.may_outlive(job)
        earlier = begun_by(run.directory)
        cut_off = earlier == run.uid or bool(run.status.get("startTime"))
        keeps_checkpoint = (cut_off or earlier is not None) and self._keeps_checkpoint(job)
        if keeps_checkpoint:
            self._metrics.go_on(job, run.directory if cut_off else None)
        elif cut_off or earlier is not None:  # of another uid: a job of this trial that was deleted
            self._metrics.discard(job)
        if cut_off:
            way = "continues from its checkpoint" if keeps_checkpoint else "is started again"
            said = f"{Key.of(job).name} was cut off and {way}"
            _log.warning("Job was cut off and is started again", extra={"job": str(Key.of(job)), "sentence": said})
            note = f"the engine ended while the job ran; it was restarted at {format_time(self._clock.now())}"
            self._annotate(run, {RESTARTED_ANNOTATION: note})
            self._objects.discard(job)
            run.take_status({})
        return run

    def _begin_run(self, job: Object) -> JobRun:
        kind = self._kinds[Kind.of(job)]
        templates = kind.templates(job).values()
        network = HOST_NETWORK
        if (images := self._machine.images) is not None:
            needs_machine = self._metrics.needs_machine(job)
            network = network_of(job, kind.kind, [found for found, _ in templates], images, needs_machine=needs_machine)
        wiring: LocalWiring | NamedWiring = NamedWiring()
        if self._machine.place is not None:
            wiring = PlacedWiring()
        elif network == HOST_NETWORK:
            wiring = LocalWiring(self._ports)
        has_several = has_several_pods(job) or sum(count for _, count in templates) > 1
        directory = self._settings.root.joinpath(*Key.of(job))
        return JobRun(job, kind, wiring, directory, network, has_several)

    def _release(self, run: JobRun) -> None:
        """Release the resources that the pods of a job shared, after all have ended."""
        run.wiring.release()
        if run.network != HOST_NETWORK and self._machine.images is not None:
            from katib.places.machine.pods.images import execute

            execute(self._machine.images.remove_network(run.network), self._pods.processes)

    def _let_go(self, key: Key, run: JobRun) -> ReconcileResult:
        """End the pods of a job that was deleted or interrupted; forget it when they are gone."""
        unfinished = run.unfinished_pods()
        for pod in unfinished:
            self._loop.call_soon(pod.stop)
        if not unfinished:
            self._metrics.job_gone(run.job)
            self._owner.gone(run.job)
            self._release(run)
            del self._runs[key]
            self._place.forget(run.uid)
            self._announce_end()
            self._queue.add(key)  # another job may have the name by now
        return DONE

    def _is_held(self, run: JobRun) -> bool:
        """Return whether a job waits although its pods might run: nothing of it ran when its experiment was stopped."""
        if not self._owner.is_stopped(run.job):
            run.is_held = False
        elif not run.is_held:
            records = [pod.record for pod in run.unfinished_pods()]
            run.is_held = bool(records) and all(one.waiting and not one.is_running for one in records)
        return run.is_held

    def _planned(self, run: JobRun, observed: ObservedJob) -> Plan:
        if not self._is_held(run):
            return run.kind.plan(observed)
        plan = run.kind.plan(replace(observed, job=with_suspension(observed.job, suspended=True)))
        return replace(plan, waiting=HELD_WORDS)

    def _apply(self, key: Key, run: JobRun) -> ReconcileResult:
        observed = ObservedJob(
            job={**run.job, "status": run.status},
            pods=self._records(run),
            moment=JobTime(self._clock.now(), self._pods.steady.now()),
            delays=self._pods.delays,
            started_at=run.started_at,
            memory=run.memory,
        )
        decision = self._planned(run, observed)
        self._tell_retries(run, observed, decision)
        if decision.delete:
            return self._delete(key, run)
        if decision.restarts_log:  # first: when the log cannot be reached, the same is planned again
            self._begin_log(run)
        run.started_at, run.waiting, run.memory = decision.started_at, decision.waiting, decision.memory
        for pod in run.pods:
            if pod.record.name in decision.stop:
                run.stopped.add(pod.record.name)
                self._loop.call_soon(pod.stop)
        if decision.new_addresses:
            run.wiring.release()
        if decision.start and not self._stopping:
            self._start_pods(key, run, decision.start)
        self._keep(run)
        wait = self._write(run, observed, decision)
        if run.is_over and run.unwritten_since is None:
            if run.pods:
                self._release(run)
            run.pods.clear()
            self._objects.changed(key, is_over=True)
        seconds = None
        if decision.wake_at is not None:  # never early: waking a moment before would plan the same again at once
            seconds = max(0.0, (decision.wake_at - self._pods.steady.now()).total_seconds()) + 0.001
        return ReconcileResult(earliest(wait, self._tell(run), seconds))

    def _records(self, run: JobRun) -> tuple[PodRecord, ...]:
        """Return the records of a job's pods. As on Kubernetes, one that a Job has stopped may still have succeeded.

        Unless its trial keeps a checkpoint: then it ends well with its work undone, and continues from there.
        """
        records = tuple(map(_RECORD, run.pods))
        ended_well = [
            one.name for one in records if one.stopping and one.phase is PodPhase.SUCCEEDED and not one.reason
        ]
        if not ended_well or run.kind.kind != JOB or self._keeps_checkpoint(run.job):
            return records
        return tuple(replace(one, stopping=False) if one.name in ended_well else one for one in records)

    def _begin_log(self, run: JobRun) -> None:
        """Have the pods that start next begin the log of a trial again, or continue it."""
        if self._goes_on(run):
            self._metrics.go_on(run.job)
        else:
            self._metrics.discard(run.job)
        if run.kind.kind == JOB:
            run.first_kept = len(run.pods)
        else:  # it counts its pods, and their logs do not show any more what they did
            run.is_kept = False
            self._place.forget(run.uid)

    def _goes_on(self, run: JobRun) -> bool:
        """Return whether the next pod continues the readings of the last one.

        That one was suspended: without a folder of ours, the program may keep a checkpoint itself. Or it was
        preempted or lost, and there is such a folder.
        """
        if not run.pods or is_suspended({"status": run.status}) or self._keeps_checkpoint(run.job):
            return bool(run.pods)
        last = run.pods[-1].record
        return last.reason in RESUMED and self._owner.provision(run.job).checkpoint is not None

    def _tell(self, run: JobRun) -> float | None:
        """Report the standing of a job once it has held; return the seconds until the next look."""
        if run.is_over or (standing := run.standing) == run.reported:
            run.unreported = None
            return None
        now = self._clock.monotonic()
        if run.unreported is None or run.unreported[0] != standing:
            run.unreported = standing, now
        settle_seconds = 0.0 if suspended_at(run.job) else self._settings.settle_seconds
        left = run.unreported[1] + settle_seconds - now
        if left > 0:
            return left
        run.reported, run.unreported = standing, None
        self._owner.stands(run.job)
        return None

    def _tell_retries(self, run: JobRun, observed: ObservedJob, decision: Plan) -> None:
        """Report failed tries that were followed by another one before their status had settled."""
        if not run.restarted and not run.retrying and not retry_words({"status": decision.status}):
            return
        decisions = []
        while run.restarted:
            record = run.restarted.popleft()
            pods = tuple(record if pod.name == record.name else pod for pod in observed.pods)
            decisions.append(run.kind.plan(replace(observed, pods=pods)))
        stored = retry_words(run.job)
        for found in (*decisions, decision):
            text = retry_words({"status": found.status})
            if run.retrying not in ("", text):
                self._owner.retried(run.job, run.retrying)
            run.retrying = "" if text == stored else text

    def _start_pods(self, key: Key, run: JobRun, starts: Sequence[PodStart]) -> None:
        """Start pods that were decided on at once: those of a job with roles together or not at all."""
        pods: list[AnyPod] = []
        if failed := [pod.plan.labels for pod in run.pods if pod.record.phase is PodPhase.FAILED]:
            others = [pod.plan.labels for pod in run.pods if pod.record.phase is not PodPhase.FAILED]
            self._metrics.try_again(run.job, failed, others)
        try:
            for start in starts:
                if not run.pods and not pods:
                    clear_directory(run.directory)
                pods.append(self._new_pod(key, run, self._prepare(run, start)))
        except UnavailableError as error:
            run.waiting = str(error)
            raise
        finally:
            if starts[0].role and len(pods) < len(starts):
                pods.clear()
            run.pods.extend(pods)
            self._keep(run)  # before any of their processes is started
            if pods:
                begin = partial(self._place.start, pods)
                has_network = run.network != HOST_NETWORK
                self._loop.call_soon(partial(self._connect, run, pods, begin) if has_network else begin)
                self._objects.follow(run.job, pods)

    def _connect(self, run: JobRun, pods: list[AnyPod], start: Callable[[], None]) -> None:
        """Start pods once the network of their job is there. On the loop; the network is made once."""
        images = self._machine.images
        if run.is_connected or images is None:
            start()
            return
        from katib.places.machine.pods.images import execute

        run.unconnected.append((pods, start))
        if len(run.unconnected) == 1:
            make = images.make_network(run.network)
            execute(make, self._pods.processes, lambda done: self._loop.call_soon(lambda: self._joined(run, done)))

    def _joined(self, run: JobRun, done: bool) -> None:
        run.is_connected = done
        waiting, run.unconnected = run.unconnected, []
        for pods, start in waiting:
            if done:
                start()
                continue
            for pod in pods:
                pod.refuse(f'network "{run.network}" cannot be made; see what "network create" of the runtime says')

    def _prepare(self, run: JobRun, start: PodStart) -> PodPlan:
        try:
            plan = prepare_pod(run, run.kind.pod(run.job, start, run.wiring), start, self._preparation)
        except InvalidError as error:
            plan = impossible_pod(run, start, "; ".join(map(str, error.errors)))
        if run.has_several:
            from katib.places.machine.pods.objects import pod_metadata
            from katib.service.tuning.replicas import replica_name

            plan = replace(plan, replica=replica_name({"metadata": pod_metadata(plan)}))
        begin_note(plan, run.uid)
        return plan

    def _new_pod(self, key: Key, run: JobRun, plan: PodPlan) -> AnyPod:
        monitor, pulled = partial(self._metrics.open, run.job), partial(self._owner.pulled, run.job)
        pod: AnyPod = self._place.new_pod(plan, PodListener(monitor, partial(self._pod_changed, key), pulled))
        return pod

    def _pod_changed(self, key: Key, pod: AnyPod, before: PodRecord) -> None:
        """Have the job reconciled: at once when the pod ended, or may be waited for by others of its job.

        Whatever else changes only shows in a status that has to hold for a moment. Most tiny trials are over by then.

        Args:
            key: Of the job.
            pod: Which.
            before: Its record before the change: a container of it may have failed that is started again in place.
        """
        run = self._runs.get(key)
        if run is not None and pod.record.retries > before.retries:
            run.restarted.append(pod.record)
        if pod.record.is_finished or pod.plan.role:
            self._queue.add(key)
        else:
            self._queue.add_after(key, self._settings.settle_seconds)
        self._objects.changed(key)
        if self._stopping:
            self._announce_end()

    def _announce_end(self) -> None:
        with self._ended:
            self._ended.notify_all()

    def _delete(self, key: Key, run: JobRun) -> ReconcileResult:
        if not self._owner.may_delete(run.job):
            return ReconcileResult(_TTL_RETRY_SECONDS)
        with contextlib.suppress(NotFoundError):
            self._store.delete(run.kind.kind, key, uid=run.uid)
        return DONE

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, run: JobRun, observed: ObservedJob, decision: Plan) -> float | None:
        """Store the status if it changed and has settled; return in how many seconds to look again."""
        run.take_status(decision.status)
        if run.status == (run.job.get("status") or {}):
            run.unwritten_since = None
            return None
        now = self._clock.monotonic()
        if run.unwritten_since is None:
            run.unwritten_since = now
        left = run.unwritten_since + self._settings.settle_seconds - now
        if not run.is_over and left > 0:
            return left
        if run.is_over:
            self._objects.conclude(Key.of(run.job))
        if run.is_over and not run.explanation_written:
            texts = list(dict.fromkeys(p.explanation for p in observed.pods if p.explanation))
            if texts:
                self._annotate(run, {METRICS_REPORT_ANNOTATION: "; ".join(texts)})
            run.explanation_written = True
        self._with_retry(run, lambda job: self._store.update_status({**job, "status": run.status}))
        run.unwritten_since, run.retrying = None, ""
        return None

    def _annotate(self, run: JobRun, annotations: dict[str, str]) -> None:
        def annotate(job: Object) -> Object:
            all_ = {**(job["metadata"].get("annotations") or {}), **annotations}
            return self._store.update({**job, "metadata": {**job["metadata"], "annotations": all_}})

        self._with_retry(run, annotate)

    def _with_retry(self, run: JobRun, write: Callable[[Object], Object]) -> None:
        """Write a change of the job; if it was changed meanwhile, once more on its newest version.

        Raises:
            ConflictError: It keeps changing.
            NotFoundError: It is gone.
        """
        try:
            run.wrote(write(run.job))
        except ConflictError:
            fresh = self._store.get(run.kind.kind, Key.of(run.job))
            if fresh["metadata"]["uid"] != run.uid:
                raise
            run.wrote(fresh)
            run.wrote(write(fresh))
