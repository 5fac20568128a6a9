"""A pod as a kubelet runs it, at the level of processes.

| rule | here |
|---|---|
| native sidecars start first, in order, then the containers | yes |
| a container that ends runs again as the pod's restart policy says, a native sidecar always | after `restart_seconds` |
| a container's own policy, and its rules by exit code (1.34) | `again`; a rule for all containers (1.36) `all_again` |
| when no container will run again, sidecars get SIGTERM in reverse order, each after the one behind it | yes |
| what is left after the grace period gets SIGKILL | yes; that begins when the last container has ended |
| a pod that is deleted: SIGTERM to the containers, then as above within the same grace period | `delete` |
| probes, images, volumes, resources, growing pauses between restarts | no |
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

_LOOK_SECONDS = 0.005


@dataclass
class Container:
    """One container of a pod.

    Attributes:
        name: As in the pod's status.
        command: What its first process runs.
        environment: Variables beyond those of the test.
        native: Whether it is a native sidecar.
        termination_log: Where it leaves what it has to say.
        again: The exit codes with which it runs again, whatever the pod's policy says; None: as the pod's says.
        all_again: Those with which all containers of the pod are killed and run again, the ones that have ended too.
        codes: How its runs ended: exit codes, 128 and the number of a signal.
        times: When its last run began and ended.
        signals: What it was sent.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    native: bool = False
    termination_log: Path | None = None
    again: Collection[int] | None = None
    all_again: Collection[int] = ()
    codes: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    ended_at: float = 0.0
    times: list[str] = field(default_factory=list)
    signals: list[signal.Signals] = field(default_factory=list)

    @property
    def wants_all_again(self) -> bool:
        """Whether it has just ended so that all containers are to run again."""
        return self.process is None and bool(self.codes) and self.codes[-1] in self.all_again

    @property
    def runs(self) -> bool:
        """Whether its first process is alive."""
        return self.process is not None and self.process.poll() is None


class Kubelet:
    """Runs one pod. Use as a context, which ends everything.

    Args:
        containers: In the order of the pod's spec, native sidecars among themselves and the others among themselves.
        restart_policy: Of the pod.
        grace_seconds: Of the pod.
        restart_seconds: Pause before a container runs again.
        look_seconds: For so long it may not notice the end of the last container; it does when the sidecars end, too.
    """

    def __init__(
        self,
        containers: Sequence[Container],
        *,
        restart_policy: str = "Never",
        grace_seconds: float = 30.0,
        restart_seconds: float = 0.1,
        look_seconds: float = 0.0,
    ) -> None:
        self._sidecars = [container for container in containers if container.native]
        self._ordinary = [container for container in containers if not container.native]
        self._policy = restart_policy
        self._grace_seconds = grace_seconds
        self._restart_seconds = restart_seconds
        self._look_seconds = look_seconds
        self._deleted_at: float | None = None
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()  # which starts nothing any more, and ends the sidecars
        for container in self._everyone():
            if container.process is not None:
                container.process.kill()
                container.process.wait()

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until the pod has ended."""
        assert self._ended.wait(seconds), f"the pod did not end within {seconds:g} s"

    @property
    def has_ended(self) -> bool:
        """Whether no container runs or will run."""
        return self._ended.is_set()

    def delete(self) -> None:
        """Ask the pod to end."""
        self._deleted_at = time.monotonic()
        for container in self._ordinary:
            _signal(container, signal.SIGTERM)

    def kill(self, name: str) -> None:
        """Kill the first process of a container, as the kernel does when memory is short, and see it dead.

        A process that waits for a slow disk dies only when the disk has answered; a second call meanwhile would kill
        the same one again.
        """
        container = next(container for container in self._everyone() if container.name == name)
        while (process := container.process) is None or process.poll() is not None:
            assert not self.has_ended, f"{name} does not run any more"
            time.sleep(_LOOK_SECONDS)
        process.kill()
        process.wait()

    def spec(self) -> dict[str, Any]:
        """Return the pod's spec as far as anybody reads it."""
        return {
            "restartPolicy": self._policy,
            "initContainers": [{"name": c.name, "restartPolicy": "Always"} for c in self._sidecars],
            "containers": [{"name": c.name, "command": list(c.command)} for c in self._ordinary],
        }

    def status(self) -> dict[str, Any]:
        """Return the pod's status as far as anybody reads it."""
        failed = any(container.codes and container.codes[-1] for container in self._ordinary)
        phase = "Running" if not self.has_ended else "Failed" if failed else "Succeeded"
        return {
            "phase": phase,
            "initContainerStatuses": [_status_of(container) for container in self._sidecars],
            "containerStatuses": [_status_of(container) for container in self._ordinary],
        }

    # --- the life of the pod ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        for container in self._everyone():
            _start(container)
        while not self._stopping.is_set():
            for container in self._everyone():
                self._look_after(container)
            if any(container.wants_all_again for container in self._everyone()):
                self._restart_all()
            if self._deleted_at is not None and self._is_over(self._deleted_at):
                for container in self._ordinary:
                    _signal(container, signal.SIGKILL)
            if not any(container.process or self._runs_again(container) for container in self._ordinary):
                break
            time.sleep(_LOOK_SECONDS)
        self._end_sidecars(time.monotonic() if self._deleted_at is None else self._deleted_at)
        self._ended.set()

    def _look_after(self, container: Container) -> None:
        """Note the end of a container and start it again when that is due."""
        _note_end(container)
        due = time.monotonic() >= container.ended_at + self._restart_seconds
        if not container.runs and due and self._runs_again(container):
            _start(container)

    def _runs_again(self, container: Container) -> bool:
        if self._deleted_at is not None or self._stopping.is_set():
            return False
        failed = bool(container.codes and container.codes[-1])
        if container.again is not None and container.codes:
            return container.codes[-1] in container.again
        return container.native or self._policy == "Always" or (self._policy == "OnFailure" and failed)

    def _restart_all(self) -> None:
        for container in self._everyone():
            _signal(container, signal.SIGKILL)
            if container.process is not None:
                container.process.wait()
            _note_end(container)
        for container in self._everyone():
            _start(container)
            self._stopping.wait(self._restart_seconds)  # images are pulled, sidecars looked at
            for other in self._everyone():
                _note_end(other)

    def _end_sidecars(self, since: float) -> None:
        while any(c.runs for c in self._sidecars) and time.monotonic() < since + self._look_seconds:
            time.sleep(_LOOK_SECONDS)
        for container in reversed(self._sidecars):
            _signal(container, signal.SIGTERM)
            while container.runs and not self._is_over(since) and not self._stopping.is_set():
                time.sleep(_LOOK_SECONDS)
            _signal(container, signal.SIGKILL)
            if container.process is not None:
                container.process.wait()
            _note_end(container)

    def _is_over(self, since: float) -> bool:
        return time.monotonic() - since >= self._grace_seconds

    def _everyone(self) -> list[Container]:
        return [*self._sidecars, *self._ordinary]


def _start(container: Container) -> None:
    if container.termination_log is not None:
        container.termination_log.unlink(missing_ok=True)
    variables = {**os.environ, **container.environment}
    container.times = [datetime.now(UTC).isoformat()]
    container.process = subprocess.Popen(container.command, env=variables, stdout=subprocess.DEVNULL)


def _note_end(container: Container) -> None:
    """Add the exit code of a run that is over, once."""
    process = container.process
    if process is not None and (code := process.poll()) is not None:
        container.codes.append(code if code >= 0 else 128 - code)
        container.ended_at = time.monotonic()
        container.times.append(datetime.now(UTC).isoformat())
        container.process = None


def _signal(container: Container, number: signal.Signals) -> None:
    if container.runs and container.process is not None:
        container.signals.append(number)
        container.process.send_signal(number)


def _status_of(container: Container) -> dict[str, Any]:
    status: dict[str, Any] = {"name": container.name, "restartCount": max(0, len(container.codes) - 1)}
    if container.runs or not container.codes:
        return {**status, "state": {"running": {"startedAt": container.times[0]}}}
    log = container.termination_log
    message = log.read_text() if log is not None and log.exists() else ""
    ended = {"exitCode": container.codes[-1], "startedAt": container.times[0], "finishedAt": container.times[1]}
    return {**status, "state": {"terminated": {**ended, **({"message": message} if message else {})}}}
