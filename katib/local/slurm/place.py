"""All pods that run as jobs of Slurm. Fits `katib.local.pods.place.PodPlace`."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from katib.errors import InvalidError, TerminalError
from katib.local.pods.loop import Loop
from katib.local.pods.objects import PodPlan
from katib.local.pods.place import KeptGroup, PodListener
from katib.local.pods.records import Delays
from katib.local.pods.tokens import VISIBLE_CARDS
from katib.local.slurm.commands import Slurm, clean_environment
from katib.local.slurm.options import job_options
from katib.local.slurm.pod import SlurmPod, SlurmTools
from katib.local.slurm.scheduler import Scheduler, Submission
from katib.local.slurm.script import environment_of, pod_script
from katib.runtime.clock import Clock, SteadyTime

_NOTE: Final = "note"
_LOOK_SECONDS: Final = 0.2
_SECONDS_PER_POD: Final = 0.0005
"""Files of running pods are looked at less often when there are many: 2,000 of them once a second."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How pods become jobs.

    Attributes:
        slurm: Calls Slurm.
        options: Of `sbatch`, for every job.
        notes: Has a directory for each job with running pods: what the next engine needs to know, and how far they are.
        delays: Pauses before containers are started again.
    """

    slurm: Slurm
    options: Sequence[str]
    notes: Path
    delays: Delays


class SlurmPods:
    """Makes pods that are jobs of Slurm. All of them outlive this engine.

    Args:
        settings: How.
        loop: On which the pods live.
        steady: Time of their records.
        clock: Time.
    """

    def __init__(self, settings: SlurmSettings, loop: Loop, steady: SteadyTime, clock: Clock) -> None:
        self._settings = settings
        self._loop = loop
        self._scheduler = Scheduler(settings.slurm, clock)
        self._tools = SlurmTools(loop, self._scheduler, clock, steady)
        self._pods: dict[str, SlurmPod] = {}  # those that have not ended, by their uids; of the loop
        self._noted = {path.parent.name for path in settings.notes.glob(f"*/{_NOTE}")}
        self._is_started = False
        self._scheduler.start()

    @property
    def keeps(self) -> bool:
        """Whether pods can outlive this engine: all do."""
        return True

    def close(self) -> None:
        """Stop asking Slurm; jobs go on."""
        self._scheduler.stop()

    def new_pod(self, plan: PodPlan, listener: PodListener) -> SlurmPod:
        """Return a pod."""
        return SlurmPod(plan, listener, self._tools, self._settings.notes / _group(plan) / plan.uid)

    def start(self, pods: Sequence[SlurmPod]) -> None:
        """Submit pods."""
        for pod in pods:
            plan = pod.plan
            if plan.cannot_start:
                pod.refuse(plan.cannot_start)
                continue
            try:
                submission = self._submission(pod)
            except InvalidError as error:
                pod.refuse("; ".join(map(str, error.errors)))
                continue
            self._take(pod, submission)
            self._scheduler.submit(submission)

    def _submission(self, pod: SlurmPod) -> Submission:
        plan = pod.plan
        options = job_options(plan, _comment(plan), self._settings.options)
        environment = clean_environment(environment_of(plan))
        if plan.request.gpus:
            environment.pop(VISIBLE_CARDS, None)  # Slurm sets it
        for name in ("SLURM_CONF",):
            if name in self._settings.slurm.environment:
                environment.setdefault(name, self._settings.slurm.environment[name])
        news = partial(self._loop.call_soon, pod.look)
        script = pod_script(plan, pod.state_file, self._settings.delays)
        return Submission(_comment(plan), script, options, environment, news)

    def _take(self, pod: SlurmPod, submission: Submission) -> None:
        self._pods[pod.plan.uid] = pod
        with contextlib.suppress(OSError):  # then its script says so
            pod.state_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._is_started:
            self._is_started = True
            self._loop.call_later(_LOOK_SECONDS, self._look)
        pod.follow(submission)

    def _look(self) -> None:
        """Look at the files of all pods, again and again."""
        for uid, pod in list(self._pods.items()):
            pod.look()
            if pod.record.is_finished:
                del self._pods[uid]
        self._loop.call_later(max(_LOOK_SECONDS, _SECONDS_PER_POD * len(self._pods)), self._look)

    # --- what outlives us ---------------------------------------------------------------------------------------------

    def kept(self) -> Iterator[KeptGroup]:
        """Yield what the engine before has left a note of."""
        for path in sorted(self._settings.notes.glob(f"*/{_NOTE}")):
            with contextlib.suppress(OSError):
                yield KeptGroup(path.parent.name, path.read_bytes())

    def resume(self, pods: Sequence[SlurmPod], _kept: KeptGroup, stopped: Collection[str]) -> None:
        """Go on with their jobs. One whose submission was not answered is looked for, and submitted if need be."""
        for pod in pods:
            if pod.plan.cannot_start:
                pod.refuse(pod.plan.cannot_start)
                continue
            try:
                submission = self._submission(pod)
            except InvalidError as error:
                pod.refuse("; ".join(map(str, error.errors)))
                continue
            self._take(pod, submission)
            if pod.is_started or pod.plan.name in stopped:
                self._scheduler.follow(submission)
            else:
                submission.was_tried = True  # by the engine before, perhaps
                self._scheduler.submit(submission)
            if pod.plan.name in stopped:
                pod.stop()

    def end(self, groups: Iterable[KeptGroup]) -> None:
        """End the jobs of groups that belong to no job of ours any more."""
        wanted = list(groups)
        if not wanted:
            return
        ids = {group.group for group in wanted}
        jobs = self._settings.slurm.jobs()
        found = [number for number, state in jobs.items() if _group_of(state.comment) in ids and not state.is_over]
        if found:
            self._settings.slurm.cancel(found)
        for group in ids:
            self.forget(group)

    def is_kept(self, group: str) -> bool:
        """Return whether a group outlives this engine."""
        return group in self._noted

    def note(self, group: str, data: bytes) -> None:
        """Leave a note in a file."""
        self._noted.add(group)
        path = self._settings.notes / group / _NOTE
        draft = path.with_suffix(".new")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.touch(mode=0o600)
            draft.write_bytes(data)
            draft.replace(path)
        except OSError as error:
            _log.warning("Note for the next engine cannot be written", extra={"cause": error.strerror})

    def forget(self, group: str) -> None:
        """Remove the note, and the state of its pods."""
        if group in self._noted:
            self._noted.discard(group)
            shutil.rmtree(self._settings.notes / group, ignore_errors=True)


def _comment(plan: PodPlan) -> str:
    """Return by what the job of a pod is found again: its job's uid and its own."""
    return f"katib:{_group(plan)}:{plan.uid}"


def _group(plan: PodPlan) -> str:
    return plan.group or plan.uid


def _group_of(comment: str) -> str:
    mark, _, rest = comment.partition(":")
    return rest.partition(":")[0] if mark == "katib" else ""


def refuse_where_noted(notes: Path) -> None:
    """Refuse to run trials on this machine while an earlier engine has left some in Slurm.

    Raises:
        TerminalError: There are notes of them.
    """
    if any(notes.glob(f"*/{_NOTE}")):
        cause = "trials of this data directory run as jobs of Slurm"
        raise TerminalError(f"{cause}; add --on slurm, so that they are followed or ended")
