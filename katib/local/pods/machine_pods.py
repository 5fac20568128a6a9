"""Pods that run on this machine. Fits `katib.local.pods.place.PodPlace`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from functools import partial

from katib.local.pods.objects import PodPlan
from katib.local.pods.place import KeptGroup, PodListener
from katib.local.pods.pod import Pod
from katib.local.pods.tokens import Lease, Request
from katib.local.pods.tools import PodTools
from katib.local.processes.connection import KeptProcess

_END_SECONDS = 10.0

PodProcesses = Mapping[str, Sequence[KeptProcess]]
"""Processes of a pod by the name of their container, the oldest first."""


class MachinePods:
    """Makes pods of processes, or of containers where there is a runtime.

    Args:
        tools: What all of them use.
    """

    def __init__(self, tools: PodTools) -> None:
        self._tools = tools
        self._processes = tools.processes

    @property
    def keeps(self) -> bool:
        """Whether processes can outlive this engine."""
        return self._processes.keeps

    def close(self) -> None:
        """Do nothing: the owner of the processes stops them."""

    def new_pod(self, plan: PodPlan, listener: PodListener) -> Pod:
        """Return a pod."""
        return Pod(plan, self._tools, listener)

    def start(self, pods: Sequence[Pod]) -> None:
        """Start pods as soon as the resources that they request together are free.

        Two jobs that each hold half of the machine while their other halves wait would wait forever; so what the pods
        of a job request is leased in one piece, and each of them gets its part.
        """
        if len(pods) == 1 and not pods[0].plan.role:
            pods[0].start()
            return
        tokens = self._tools.tokens
        broken = [pod for pod in pods if pod.plan.cannot_start]
        requests = [pod.plan.request for pod in pods]
        total = sum(requests, Request())
        if broken or (excess := total.excess_over(tokens.capacity)):
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

        tokens.ask(ticket, total, granted, holder=pods[0].plan.holder, waits=waits)
        waits()

    def kept(self) -> Iterator[KeptGroup]:
        """Yield what the guard has kept."""
        inherited = self._processes.inherited
        if inherited is None:
            return
        for group in dict.fromkeys([*inherited.notes, *(program.group for program in inherited.programs)]):
            programs = tuple(program for program in inherited.programs if program.group == group)
            yield KeptGroup(group, inherited.notes.get(group, b"") if programs else b"", programs)

    def resume(self, pods: Sequence[Pod], kept: KeptGroup, stopped: Collection[str]) -> None:
        """Go on with the processes of pods that outlived their engine; start the pods that had not begun."""
        tokens, programs = self._tools.tokens, by_pod(kept.programs)
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
                os.close(program.output)
                ending.append(self._processes.kill_tree(self._processes.attach(program, lambda *_: None)))
            self._processes.forget(kept.group)
        wait(ending, _END_SECONDS)

    def is_kept(self, group: str) -> bool:
        """Return whether the guard keeps a group."""
        return self._processes.is_kept(group)

    def note(self, group: str, data: bytes) -> None:
        """Leave a note with the guard, where it is exactly as long as the processes are."""
        self._processes.note(group, data)

    def forget(self, group: str) -> None:
        """Have what still runs of a group end with this engine."""
        self._processes.forget(group)


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
