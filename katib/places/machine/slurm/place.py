"""All pods that run as jobs of Slurm. Fits `katib.places.machine.pods.place.PodPlace`."""

from __future__ import annotations

import contextlib
import logging
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from katib.engine.runtime.clock import Clock, SteadyTime
from katib.errors import InvalidError, TerminalError, UnavailableError
from katib.model.files.directories import make_below
from katib.model.files.whole_files import write_whole
from katib.places.machine.pods.loop import Loop
from katib.places.machine.pods.place import KeptGroup, PodListener
from katib.places.machine.pods.plans import PodPlan
from katib.places.machine.pods.records import Delays
from katib.places.machine.pods.requests import VISIBLE_CARDS
from katib.places.machine.slurm.commands import Slurm, clean_environment, refused
from katib.places.machine.slurm.pod import SlurmPod, SlurmTools
from katib.places.machine.slurm.scheduler import OURS, Scheduler, SlurmSubmission
from katib.places.machine.slurm.script import (
    GeneralOptions,
    environment_of,
    first_streams,
    first_task_script,
    gang_environment,
    gang_options,
    gang_script,
    have_tasks,
    inherits_environment,
    job_options,
    launcher_options,
    launcher_script,
    pod_script,
    requested_options,
    step_script,
    written_options,
)
from katib.places.machine.slurm.steps import StepScheduler, step_environment

_NOTE: Final = "note"
_GANG: Final = ".gang"
_TASKS_END_ALONE: Final = ("--wait=1", "--kill-on-bad-exit=0")
"""Options of a step of which the first task ends before those that keep a place."""

_LOOK_SECONDS: Final = 0.05
_SECONDS_PER_POD: Final = 0.0005
"""Files are looked at less often when there are many pods: those of 2,000 pods once a second."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How pods become jobs.

    Attributes:
        notes: Has a directory for each job with running pods: a note for the next engine, and their progress.
        delays: Pauses before containers are started again.
        allocation: Number of the job in which this process runs, whose steps the pods become; empty outside of one.
        on_end: Called when that ends and cuts off pods.
    """

    slurm: Slurm
    options: GeneralOptions
    notes: Path
    delays: Delays
    allocation: str = ""
    on_end: Callable[[], None] = lambda: None


class _Execution(NamedTuple):
    """The script of a job, its environment and options, and the files for its output."""

    environment: Mapping[str, str]
    requested: Sequence[str]
    files: Sequence[Path]
    script: str


class SlurmPods:
    """Makes pods that are jobs of Slurm. All of them outlive this engine."""

    def __init__(self, settings: SlurmSettings, loop: Loop, steady: SteadyTime, clock: Clock) -> None:
        self._settings = settings
        self._loop = loop
        self._scheduler: Scheduler | StepScheduler = Scheduler(settings.slurm, clock)
        if settings.allocation:
            self._scheduler = StepScheduler(settings.slurm, clock, settings.allocation, settings.on_end)
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
        """Stop asking Slurm; jobs continue."""
        self._scheduler.stop()

    def new_pod(self, plan: PodPlan, listener: PodListener) -> SlurmPod:
        return SlurmPod(plan, listener, self._tools, self._settings.notes / _group(plan) / plan.uid)

    def start(self, pods: Sequence[SlurmPod]) -> None:
        """Submit pods, those with roles as one job."""
        for gang in [pods] if pods[0].plan.role else [[pod] for pod in pods]:
            if (submission := self._take(gang)) is not None:
                self._scheduler.submit(submission)

    def _take(self, pods: Sequence[SlurmPod]) -> SlurmSubmission | None:
        """Return the job of pods, which follow it from now on; None when they can never start."""
        broken = next((pod.plan.cannot_start for pod in pods if pod.plan.cannot_start), "")
        try:
            submission = None if broken else self._submission(pods)
        except InvalidError as error:
            broken = "; ".join(map(str, error.errors))
        if broken or submission is None:
            for pod in pods:
                pod.refuse(broken)
            return None
        with contextlib.suppress(OSError):  # then its script says so
            directory = pods[0].state_file.parent
            make_below(self._settings.notes.parent, directory, 0o700)
            if pods[0].plan.role:
                gang = "".join(f"{pod.plan.uid}\n" for pod in pods)
                (directory / f"{pods[0].plan.uid}{_GANG}").write_text(gang)
        if not self._is_started:
            self._is_started = True
            self._loop.call_later(_LOOK_SECONDS, self._look)
        for pod in pods:
            self._pods[pod.plan.uid] = pod
            pod.follow(submission, pods)
        return submission

    def _submission(self, pods: Sequence[SlurmPod]) -> SlurmSubmission:
        first, plans, settings = pods[0].plan, [pod.plan for pod in pods], self._settings
        comment, inside = f"{OURS}{_group(first)}:{first.uid}", bool(settings.allocation)
        common, requested, files, script = self._of_gang(pods) if first.role else self._of_pod(pods[0])
        options = job_options(first, comment, requested, settings.options, files, is_step=inside)
        if not inherits_environment(first.annotations):  # sbatch finds what `export` names in ours
            common = settings.slurm.environment
        environment = step_environment(common, settings.slurm.environment) if inside else clean_environment(common)
        if any(plan.request.gpus for plan in plans):
            environment.pop(VISIBLE_CARDS, None)  # Slurm sets it

        def news() -> None:
            for pod in pods:
                self._loop.call_soon(pod.look)

        return SlurmSubmission(comment, script, options, environment, news)

    def _of_pod(self, pod: SlurmPod) -> _Execution:
        plan, file, inside = pod.plan, pod.state_file, bool(self._settings.allocation)
        common = environment_of(plan)
        known = common if inherits_environment(plan.annotations) else {}
        script = pod_script(plan, file, self._settings.delays, known, is_step=inside)
        has_tasks = have_tasks(written_options(plan, self._settings.options))
        requested = requested_options(plan.request, is_one_task=inside and not has_tasks)
        if inside and has_tasks:
            requested = (*requested, *_TASKS_END_ALONE)
            script = _in_file(first_task_script(script, file), file.with_suffix(".sh"))
        return _Execution(common, requested, first_streams(plan, file), script)

    def _of_gang(self, pods: Sequence[SlurmPod]) -> _Execution:
        plans, files, delays = [pod.plan for pod in pods], [pod.state_file for pod in pods], self._settings.delays
        first, inside = plans[0], bool(self._settings.allocation)
        requested = gang_options([plan.request for plan in plans])
        if first.slots and len(pods) == 1:
            requested, script = launcher_options(first), launcher_script(first, files[0], delays, is_step=inside)
            requested = (*requested, *(_TASKS_END_ALONE if inside else ()))
        elif inside:
            requested = (*requested, "--wait=0", "--kill-on-bad-exit=0")  # each pod ends for itself
            script = step_script(plans, files, delays)
        else:
            script = gang_script(plans, files, files[0].with_suffix(".claim"), delays)
        script = _in_file(script, files[0].with_suffix(".sh")) if inside else script
        return _Execution(gang_environment(plans), requested, (Path("/dev/null"),), script)

    def _look(self) -> None:
        """Look at the files of all pods, again and again."""
        now = self._tools.clock.monotonic()
        for uid, pod in list(self._pods.items()):
            if pod.look_at <= now:
                pod.look()
            if pod.record.is_finished:
                del self._pods[uid]
        self._loop.call_later(max(_LOOK_SECONDS, _SECONDS_PER_POD * len(self._pods)), self._look)

    # --- what outlives us ---------------------------------------------------------------------------------------------

    def kept(self) -> Iterator[KeptGroup]:
        """Yield the groups of the engine before, with their notes, and those that it had no time to end."""
        for directory in sorted(self._settings.notes.glob("*/")):
            try:
                yield KeptGroup(directory.name, (directory / _NOTE).read_bytes())
            except OSError:
                yield KeptGroup(directory.name, b"")

    def resume(self, pods: Sequence[SlurmPod], _kept: KeptGroup, stopped: Collection[str]) -> None:
        """Go on with their jobs. One whose submission was not answered is looked for, and submitted if need be."""
        for gang in self._gangs(pods):
            if (submission := self._take(gang)) is None:
                continue
            if any(pod.is_started or pod.plan.name in stopped for pod in gang):
                self._scheduler.follow(submission)
            else:
                submission.was_tried = True  # by the engine before, perhaps
                self._scheduler.submit(submission)
            for pod in gang:
                if pod.plan.name in stopped:
                    pod.stop()

    def _gangs(self, pods: Sequence[SlurmPod]) -> list[list[SlurmPod]]:
        """Return pods by the jobs that they were submitted with."""
        leaders = {pod.plan.uid: pod.plan.uid for pod in pods}
        for directory in {pod.state_file.parent for pod in pods if pod.plan.role}:
            for path in directory.glob(f"*{_GANG}"):
                leaders |= dict.fromkeys(path.read_text().split(), path.name.removesuffix(_GANG))
        found: dict[str, list[SlurmPod]] = {}
        for pod in pods:
            found.setdefault(leaders[pod.plan.uid], []).append(pod)
        return list(found.values())

    def end(self, groups: Iterable[KeptGroup]) -> None:
        """End the jobs of groups that belong to no job of ours any more."""
        wanted = list(groups)
        if not wanted:
            return
        ids = {group.group for group in wanted}
        slurm, allocation = self._settings.slurm, self._settings.allocation
        if allocation:
            found = [step for name, step in slurm.steps(allocation).items() if _group_of(name) in ids]
        else:
            found = [n for n, state in slurm.jobs().items() if _group_of(state.comment) in ids and not state.is_over]
        if found:
            slurm.cancel(found)
        for group in ids:
            self._noted.add(group)
            self.forget(group)

    def is_kept(self, group: str) -> bool:
        """Return whether a group outlives this engine."""
        return group in self._noted

    def note(self, group: str, data: bytes) -> None:
        """Leave a note in a file."""
        self._noted.add(group)
        path = self._settings.notes / group / _NOTE
        try:
            make_below(self._settings.notes.parent, path.parent, 0o700)
            write_whole(path, data, is_private=True)
        except OSError as error:
            _log.warning("The record of what runs cannot be written", extra={"cause": error.strerror})

    def forget(self, group: str) -> None:
        """Remove the note, and the state of its pods."""
        if group in self._noted:
            self._noted.discard(group)
            gone = (directory := self._settings.notes / group).with_suffix(".gone")
            with contextlib.suppress(OSError):  # a script that ends makes no file in it any more
                directory.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def _in_file(script: str, path: Path) -> str:
    """Return a script that executes a long one, which the arguments of a program may have no room for."""
    try:
        make_below(path.parents[2], path.parent, 0o700)
        write_whole(path, script)
    except OSError as error:
        raise refused(f"{path}: cannot be written: {error.strerror}") from error
    return f"exec sh {shlex.quote(str(path))}"


def _group(plan: PodPlan) -> str:
    return plan.group or plan.uid


def _group_of(comment: str) -> str:
    return comment.removeprefix(OURS).partition(":")[0] if comment.startswith(OURS) else ""


def check_cluster(slurm: Slurm, notes: Path) -> None:
    """Refuse to run trials in a cluster while an earlier engine has left some in another one, and note which it is.

    Raises:
        TerminalError: The trials that are noted run in another cluster.
        UnavailableError: The name of the cluster cannot be written.
    """
    file, name = notes.with_suffix(".cluster"), slurm.cluster()
    if not name:
        return
    with contextlib.suppress(OSError):
        earlier = file.read_text()
        if earlier not in ("", name) and any(notes.glob("*/")):
            cause = f'trials of this data directory run as jobs of the Slurm cluster "{earlier}", and this is "{name}"'
            remedy = f'run this on a login node of "{earlier}"; if it is gone for good, remove {notes} first'
            raise TerminalError(f"--on slurm: {cause}; {remedy}, and they start again here")
        if earlier == name:
            return
    try:
        file.write_text(name)
    except OSError as error:
        raise UnavailableError(f"{file}: cannot be written: {error.strerror}") from error
