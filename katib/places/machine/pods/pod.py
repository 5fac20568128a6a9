"""One pod: init containers one by one, sidecars beside them, then the main containers together. Lives on the loop.

A pod ends in this order: the main containers have ended, sidecars are stopped, remaining processes are killed,
and every monitor has stored its readings. Only then the record says Succeeded or Failed, so its metrics are
there when the job is judged. `MachinePods` makes such pods and fits `katib.places.machine.pods.place.PodPlace`.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from katib.errors import KatibError
from katib.places.machine.pods.container import Container
from katib.places.machine.pods.log_file import LogFile
from katib.places.machine.pods.loop import Timer
from katib.places.machine.pods.place import AnyPod, KeptGroup, PodListener
from katib.places.machine.pods.plans import NOTE_FILE, ContainerPlan, ContainerRole, PodPlan, is_ours, note_processes
from katib.places.machine.pods.records import ContainerExit, ContainerState, PodPhase
from katib.places.machine.pods.requests import VISIBLE_CARDS, Lease, Request, card_words
from katib.places.machine.pods.tools import PodTools
from katib.places.machine.processes.client import KeepSettings
from katib.places.machine.processes.connection import KeptProcess
from katib.places.machine.processes.handle import SpawnError

if TYPE_CHECKING:
    from katib.places.machine.pods.pulls import PullNews

POLL_SECONDS = 0.2

_LARGE_BYTES = 1 << 16


class Pod(AnyPod):
    """Runs one pod as processes or containers of this machine.

    Attributes:
        evicted: Why it is ended, if it takes resources from others; empty otherwise.
    """

    def __init__(self, plan: PodPlan, tools: PodTools, listener: PodListener) -> None:
        super().__init__(plan, listener, tools.loop, tools.steady)
        self.evicted = ""
        self._tools = tools
        self._containers: list[Container] = []
        self._lease: Lease | None = None
        self._free_cards: tuple[str, ...] = ()
        self._ticket = ""
        self._advancing = False
        self._ending = False
        self._poll_timer: Timer | None = None
        self._when_started: list[Callable[[], None]] = []

    # --- commands -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start as soon as the resources it requests are free."""
        if self.plan.cannot_start:
            self.refuse(self.plan.cannot_start)
        elif not self.record.stopping:
            if self.plan.request.is_empty:
                self.granted(Lease(self.plan.request))
                return
            tokens, waits = self._tools.tokens.get(), partial(self.wait_for, self.plan.uid)
            tokens.ask(self.plan.uid, self.plan.request, self.granted, holder=self.plan.holder, waits=waits)
            if self._lease is None:
                waits()

    def wait_for(self, ticket: str) -> None:
        """Say that it waits for a lease that was asked for under this name, unless it has it."""
        if self._lease is None and not self.record.is_finished:
            self._ticket = ticket
            self._note(waiting=self._tools.tokens.get().waiting_reason(ticket))

    def when_started(self, then: Callable[[], None]) -> None:
        """Call `then` once a main container has started, or will never."""
        if self.record.phase is PodPhase.PENDING:
            self._when_started.append(then)
        else:
            then()

    @override
    def _end_programs(self, grace_seconds: float) -> None:
        if self._ticket:
            self._tools.tokens.get().withdraw(self._ticket)
        self._end_containers([c for c in self._containers if c.is_started and not c.is_over], grace_seconds)
        self.advance()

    def evict(self, cause: str) -> None:
        """End it at once as failed: it takes the room of others.

        Only the end of its output stays. As on Kubernetes it loses the files in its own directory.
        """
        if self.record.stopping or self.evicted or self.record.is_finished:
            return
        self.evicted, self._ending = cause, True
        if self.is_storing:  # nothing of it runs any more
            self._free()
        _kill_all([c for c in self._containers if c.is_started])
        self.advance()

    @property
    def log_bytes(self) -> int:
        """How much of the disk its logs take, roughly."""
        most = self._tools.log_limits.total_bytes
        return sum(min(container.log.size, most) for container in self._containers)

    def files(self) -> dict[Path, int]:
        """Return its files on the disk of its directory, but for its output, and their sizes. For any thread."""
        from katib.places.machine.pods.disk_use import sizes_of

        folders = (self.plan.directory, *([self.plan.checkpoint] if self.plan.checkpoint is not None else []))
        pids = [container.state.pid for container in list(self._containers) if container.is_running]
        try:
            sizes = sizes_of(folders, pids, (self.plan.directory / NOTE_FILE).stat().st_mtime)
        except OSError:
            return {}
        names = [container.command.name for container in self.plan.containers]
        return {path: size for path, size in sizes.items() if not is_ours(path, self.plan.directory, names)}

    def _free(self) -> None:
        """Remove large files from its directory: it has filled the disk."""
        for path, size in self.files().items():
            if size >= _LARGE_BYTES and path.is_relative_to(self.plan.directory):
                with suppress(OSError):
                    path.unlink()

    # --- progress -----------------------------------------------------------------------------------------------------

    def granted(self, lease: Lease, kept: Mapping[str, Sequence[KeptProcess]] = MappingProxyType({})) -> None:
        """Start with a lease.

        Args:
            kept: By the name of a container, processes of it that an earlier engine started, the oldest first. The
                container continues with them instead of being started.
        """
        if self.record.is_finished:  # it was stopped while it waited
            self._give_back(lease)
            return
        self._lease = lease
        if self._tools.capacity.gpus and not lease.gpus:
            self._free_cards = self._tools.tokens.get().free_gpus()
        if self.plan.role:
            note_processes(self.plan)  # so that its peers are known by their names, whichever starts first
        try:
            self._containers = list(map(self._container, self.plan.containers))
        except (KatibError, OSError) as error:  # from the factory of monitors, whose files need room on the disk
            self._finish(PodPhase.FAILED, f"pod {self.plan.name}: {error}")
            return
        self._tools.evictions.running[self.plan.uid] = self
        for container in self._containers:
            if processes := kept.get(container.name):
                container.take_over(processes)
            if container.monitor is not None and self._poll_timer is None:
                self._poll_timer = self._tools.loop.call_later(POLL_SECONDS, self._poll)
        self.advance()

    def _container(self, plan: ContainerPlan) -> Container:
        leased = () if self._lease is None else self._lease.gpus
        if plan.image is not None:
            plan = replace(plan, image=replace(plan.image, gpus=leased))
        elif leased or (self._tools.capacity.gpus and VISIBLE_CARDS not in plan.command.env):
            env = plan.command.env | {VISIBLE_CARDS: ",".join(leased or self._free_cards)}
            plan = replace(plan, command=replace(plan.command, env=env))
        name = plan.command.name
        limits, log, group = self._tools.log_limits, self.plan.directory / f"{name}.log", self.plan.group
        monitor = self._open_monitor(name) if plan.role is ContainerRole.MAIN else None
        log_file = LogFile(log, limits, self._tools.evictions.disk_full)
        keep = KeepSettings(group, (self.plan.uid, name, *leased), log, limits.total_bytes) if group else None
        return Container(plan, self._tools, log_file, monitor, self, keep)

    # --- what containers say ------------------------------------------------------------------------------------------

    def output_read(self) -> None:
        """Look at the monitors: one has read something."""
        self._judge()

    def pulled(self, news: PullNews) -> None:
        """Pass on that an image has to be fetched, or that this has ended."""
        self._listener.pulled(news)

    # --- the next step ------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Do whatever is next. A start that fails at once comes back here, and is then served by the outer call."""
        if self._advancing or self.record.is_finished:
            return
        self._advancing = True
        try:
            if not self.record.stopping and not self._ending:
                self._start_next()
            self._update_record()
            if self._is_through():
                self._end()
        finally:
            self._advancing = False

    def _start_next(self) -> None:
        for container in self._containers:
            if not container.is_started:
                container.start()
            if container.is_starting:
                return
            if container.plan.role is ContainerRole.INIT and not container.has_succeeded:
                return  # the next one waits for it; when it failed for good there is no next one
            if container.failure is not None:
                return

    def _is_through(self) -> bool:
        """Return whether nothing is left but to clean up."""
        if self.record.stopping or self.evicted:
            return True
        mains_run = False
        for container in self._containers:
            role = container.plan.role
            if not container.is_over:
                mains_run = mains_run or role is ContainerRole.MAIN
            elif container.failure or (role is ContainerRole.INIT and not container.has_succeeded):
                return True
        return not mains_run

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Stop the containers that still run; after the last, clean up once."""
        open_ = [c for c in self._containers if c.is_started and not c.is_over]
        if open_:
            if not self._ending and not self.record.stopping:
                self._ending = True
                self._end_containers(open_, self.plan.grace_seconds)
                self._tools.loop.call_soon(self.advance)  # one that waits to be started again is over already
            return
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        containers, self._containers = self._containers, []
        if containers or self._lease is None:
            killed: list[Future[None]] = []
            for container in containers:
                killed += map(self._tools.processes.kill_tree, container.remains)
            self._tools.loop.when_all(killed, partial(self._close_monitors, containers))

    def _end_containers(self, containers: Sequence[Container], grace_seconds: float) -> None:
        self._kill_timer = self._tools.loop.call_later(grace_seconds, partial(_kill_all, containers))
        for container in containers:
            if container.monitor is not None:
                container.monitor.hasten()
            container.signal(signal.SIGTERM)

    def _close_monitors(self, containers: list[Container]) -> None:
        if self.evicted:  # now: without the room nothing that the monitors hold can be stored
            for container in containers:
                container.log.shrink()
            self._free()
            self._tools.evictions.running.pop(self.plan.uid, None)
        self._store(partial(self._conclude, containers))

    def _conclude(self, containers: list[Container], explanation: str) -> None:
        ends = [container.has_succeeded for container in containers if container.plan.role is ContainerRole.MAIN]
        failure = next((container.failure for container in containers if container.failure is not None), None)
        self._finish(
            PodPhase.SUCCEEDED if ends and all(ends) and not self.evicted else PodPhase.FAILED,
            self.evicted or self.record.message,
            cannot_start=self.record.message if isinstance(failure, SpawnError) else "",
            evicted=self.evicted,
            explanation=explanation,
        )

    @override
    def _release(self) -> None:
        if self._lease is not None:
            self._give_back(self._lease)
        self._tools.evictions.running.pop(self.plan.uid, None)

    def _give_back(self, lease: Lease) -> None:
        if not lease.request.is_empty:
            self._tools.tokens.get().give_back(lease)

    # --- monitors -----------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        for container in self._containers:
            if container.monitor is not None and container.is_running:
                container.monitor.poll()
        self._judge()
        self._poll_timer = self._tools.loop.call_later(POLL_SECONDS, self._poll)

    # --- the record ---------------------------------------------------------------------------------------------------

    def _update_record(self) -> None:
        if not self._containers:
            return
        phase, pulling, failed = PodPhase.PENDING, "", None
        restarts = failures = 0
        has_run = restart_due = address_in_use = False
        exits: list[ContainerExit] = []
        states: list[ContainerState] = []
        causes, problems = [], []  # which containers failed and how; what is wrong with their logs
        for container in self._containers:
            states.append(container.state)
            if container.has_run:
                has_run = True
                phase = PodPhase.RUNNING if container.plan.role is ContainerRole.MAIN else phase
            restarts += container.runs.restarts
            failures = max(failures, container.runs.failures)
            pulling = pulling or container.pulling
            address_in_use = address_in_use or container.runs.address_in_use
            cause = "" if container.failure is None else f": {container.failure}"
            if container.runs.exit is not None:
                exits.append(container.runs.exit)
                if container.runs.exit.code:
                    cause = cause or f" {container.runs.exit.text}"
                    failed = failed or container
                    restart_due = restart_due or container.awaits_restart
            if cause:
                causes.append(f'container "{container.name}" of pod {self.record.title}{cause}')
            if container.log.problem:
                problems.append(container.log.problem)
        self._note(
            phase=phase,
            waiting="; ".join(filter(None, (container.waiting for container in self._containers))),
            place=card_words(self._lease.gpus) if self._lease is not None and self._lease.gpus else "",
            pulling=pulling,
            restarts=restarts,
            restart_due=restart_due,
            failures=failures,
            exits=tuple(exits),
            message="; ".join(causes + problems),
            last_output="" if failed is None else failed.runs.last_output,
            containers=tuple(states) if has_run else (),
            started_at=self.record.started_at or (self._tools.steady.now() if has_run else None),
            address_in_use=address_in_use,
        )

    @override
    def _note(self, **changes: Any) -> None:
        super()._note(**changes)
        if self.record.phase is not PodPhase.PENDING:
            waiting, self._when_started = self._when_started, []
            for then in waiting:
                then()


def _kill_all(containers: Sequence[Container]) -> None:
    for container in containers:
        if not container.is_over:
            container.kill()


_END_SECONDS = 10.0

PodProcesses = Mapping[str, Sequence[KeptProcess]]
"""Processes of a pod by the name of their container, the oldest first."""


class MachinePods:
    """Makes pods of processes, or of containers if there is a runtime.

    The guard has the notes of kept groups, and each of them exactly as long as it has processes of the group.
    """

    def __init__(self, tools: PodTools) -> None:
        self._tools = tools
        self._processes = processes = tools.processes
        self.is_kept, self.note, self.forget = processes.is_kept, processes.note, processes.forget

    @property
    def keeps(self) -> bool:
        """Whether processes can outlive this engine."""
        return self._processes.keeps

    def close(self) -> None:
        """Do nothing: the owner of the processes stops them."""

    def new_pod(self, plan: PodPlan, listener: PodListener) -> Pod:
        return Pod(plan, self._tools, listener)

    def start(self, pods: Sequence[Pod]) -> None:
        """Start pods as soon as their requests are free, those of a job with roles together.

        Two jobs that each hold half of the machine while their other halves wait would wait forever; so the requests of
        the pods of a job are leased in one piece, and each of them gets its part.
        """
        if not pods[0].plan.role:
            for pod in pods:
                pod.start()
            return
        broken = [pod for pod in pods if pod.plan.cannot_start]
        requests = [pod.plan.request for pod in pods]
        total = sum(requests, Request())
        if broken or (excess := total.excess_over(self._tools.capacity)):
            for pod in broken or pods[:1]:
                pod.refuse(pod.plan.cannot_start or f"the pods of the job run together and {excess}; request less")
            return
        ticket = pods[0].plan.uid

        def granted(lease: Lease) -> None:
            gpus = list(lease.gpus)
            for pod, request in zip(pods, requests, strict=True):
                own, gpus = gpus[: request.gpus], gpus[request.gpus :]
                _begin(pod, pods, partial(pod.granted, Lease(request, tuple(own), lease.holder)))

        def waits() -> None:
            for pod in pods:
                pod.wait_for(ticket)

        self._tools.tokens.get().ask(ticket, total, granted, holder=pods[0].plan.holder, waits=waits)
        waits()

    def kept(self) -> Iterator[KeptGroup]:
        inherited = self._processes.inherited
        if inherited is None:
            return
        for group in dict.fromkeys([*inherited.notes, *(program.group for program in inherited.programs)]):
            programs = tuple(program for program in inherited.programs if program.group == group)
            yield KeptGroup(group, inherited.notes.get(group, b"") if programs else b"", programs)

    def resume(self, pods: Sequence[Pod], kept: KeptGroup, stopped: Collection[str]) -> None:
        """Go on with the processes of pods that outlived their engine; start the pods that had not begun."""
        tokens, programs = self._tools.tokens.get(), by_pod(kept.programs)
        for pod in pods:
            plan, processes = pod.plan, programs.get(pod.plan.uid, {})
            every = [process for found in processes.values() for process in found]
            cards = every[0].name[2:] if every else ()
            if every and all(process.status is not None for process in every):  # it has given back what it had
                pod.granted(Lease(Request(), cards), processes)
            elif every:
                pod.granted(tokens.keep(plan.request, cards, plan.holder), processes)
            elif plan.role and plan.name not in stopped and not plan.cannot_start:  # its gang has what it needs
                free = tokens.free_gpus()[: plan.request.gpus]
                _begin(pod, pods, partial(pod.granted, tokens.keep(plan.request, free, plan.holder)))
            elif plan.name not in stopped:
                pod.start()
            if plan.name in stopped:
                pod.stop()

    def end(self, groups: Iterable[KeptGroup]) -> None:
        """End processes; wait until they are gone."""
        ending = []
        for kept in groups:
            for program in kept.programs:
                for output in program.outputs:
                    os.close(output)
                ending.append(self._processes.kill_tree(self._processes.attach(program, lambda *_: None)))
            self._processes.forget(kept.group)
        wait(ending, _END_SECONDS)


def by_pod(programs: Iterable[KeptProcess]) -> Mapping[str, PodProcesses]:
    """Return processes by the uid of their pod."""
    found: dict[str, dict[str, list[KeptProcess]]] = defaultdict(lambda: defaultdict(list))
    for program in sorted(programs, key=lambda program: program.key):
        pod, container, *_ = program.name
        found[pod][container].append(program)
    return found


def _begin(pod: Pod, pods: Sequence[Pod], begin: Callable[[], None]) -> None:
    """Begin with a pod, after the one that it has to follow."""
    leader = next((p for p in pods if p.plan.role == pod.plan.after), None) if pod.plan.after else None
    if leader is None:
        begin()
    else:
        leader.when_started(begin)
