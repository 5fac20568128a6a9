"""Pods that run on this machine. Fits `katib.local.pods.place.PodPlace`."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait

from katib.local.pods.gang import resume_pods, start_together
from katib.local.pods.objects import PodPlan
from katib.local.pods.place import KeptGroup, PodListener
from katib.local.pods.pod import Pod
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
        """Start pods as soon as the resources that they request together are free."""
        if len(pods) == 1 and not pods[0].plan.role:
            pods[0].start()
        else:
            start_together(pods, self._tools.tokens)

    def kept(self) -> Iterator[KeptGroup]:
        """Yield what the guard has kept."""
        inherited = self._processes.inherited
        if inherited is None:
            return
        for group in dict.fromkeys([*inherited.notes, *(program.group for program in inherited.programs)]):
            programs = tuple(program for program in inherited.programs if program.group == group)
            yield KeptGroup(group, inherited.notes.get(group, b"") if programs else b"", programs)

    def resume(self, pods: Sequence[Pod], kept: KeptGroup, stopped: Collection[str]) -> None:
        """Go on with their processes."""
        resume_pods(pods, by_pod(kept.programs), stopped, self._tools.tokens)

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
