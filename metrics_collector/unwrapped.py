"""The training program of a pod whose command is not wrapped: seen as the other containers of the pod.

Katib's controller wraps no command for a Prometheus endpoint, and ours none of an image whose command it does not know.
Then all that can be seen is which first processes of containers there are, apart from Kubernetes' own and ours. The
program has ended when all of them have. How it ended cannot be seen, and a container that never ends, such as a proxy,
keeps us until SIGTERM; where we are a native sidecar, SIGTERM itself says that the program has ended.

A program that ended before we looked first leaves no trace: a container that is gone looks like one that is still to
come. Kubernetes starts ours after those before it, so one that is still to come is one that could not be started, which
is tried again after at most five minutes. What has not come after twice that time was there before us.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from katib.api.container_restarts import EXIT_CODES, runs_again
from metrics_collector.container_processes import PROC, Process, other_containers, read_process
from metrics_collector.markers import CollectedWord
from metrics_collector.program import Phase

UNSEEN_SECONDS = 600.0
"""Without any container from our beginning: twice the longest pause between two attempts to start one."""

RESTART_SECONDS = 15.0
"""Between the end of a container and its next start, where the pod starts containers again: 10 s at first."""


class UnwrappedProgram:
    """Follows every container of a pod but ours. Stands in the place of `Program`.

    Args:
        restart_policy: Of the pod.
        own_restart: What the program's container says of it, in place of the pod.
        is_over: Returns whether Kubernetes reports that no program runs any more.
        monotonic: Reads time.
        proc: Where processes are seen.
    """

    def __init__(
        self,
        *,
        restart_policy: str,
        own_restart: Mapping[str, Any] | None = None,
        is_over: Callable[[], bool],
        monotonic: Callable[[], float],
        proc: Path = PROC,
    ) -> None:
        self.completed = False
        self.doubt = ""
        again = {runs_again(own_restart or {}, restart_policy, code) for code in EXIT_CODES}
        self._always, self._may_run_again = again == {True}, True in again
        self._is_over = is_over
        self._monotonic = monotonic
        self._proc = proc
        self._seen: list[Process] = []
        self._gone_since: float | None = None
        self._began = monotonic()

    def look(self) -> Phase:
        """Look again; costs one read of a small file while the program runs."""
        if self._is_over():
            self.completed = True
            return Phase.ENDED
        self._seen = [process for process in self._seen if read_process(process.pid, self._proc) == process]
        if not self._seen:
            self._seen = other_containers(self._proc)
        if self._seen:
            self._gone_since = self._monotonic()
            return Phase.RUNNING
        if self._always or self._monotonic() < self._may_have_ended_at:
            return Phase.AWAITED
        self.completed = True
        return Phase.ENDED

    @property
    def _may_have_ended_at(self) -> float:
        """From when on a pod without containers of others is one whose program has ended."""
        if self._gone_since is None:
            return self._began + UNSEEN_SECONDS
        return self._gone_since + (RESTART_SECONDS if self._may_run_again else 0.0)

    def runs_again(self) -> bool:
        """Return whether a container runs though there was none any more."""
        return bool(other_containers(self._proc))

    def release(self, word: CollectedWord) -> None:
        """Do nothing: no shell waits."""
