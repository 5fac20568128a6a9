"""A container that runs in its image, and the interface to the program that runs it.

A runtime (podman, docker) is a command of this machine. Its client stays attached while the container runs, so it is
the process of the container for everybody else: its output and its exit code are those of the container, and it passes
signals on.
Two actions have commands of their own, as the client cannot do them as a process: the end by force, and the removal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from katib.errors import KatibError
from katib.model.failure_text import OUT_OF_MEMORY
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.image_runs import ImageRun, Pull
from katib.places.machine.pods.loop import Loop
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.handle import Command, ProcessExit, SpawnError

NodeImages = Callable[[ImageRun, Mapping[str, str], Mapping[str, Any]], ContainerCommand]
"""Returns the command of a node for an image, our environment and a container of a template."""


class ImageRuntime(Protocol):
    """Runs images. Every method returns at once; commands are for the guard to start."""

    @property
    def has_names(self) -> bool:
        """Whether containers find each other by name in a network of their own."""

    def has_image(self, image: str) -> ContainerCommand:
        """Return the command that succeeds if an image is on this machine."""

    def pull(self, image: str) -> ContainerCommand:
        """Return the command that fetches an image."""

    def pull_failure(self, run: ImageRun, output: str, *, is_here: bool) -> SpawnError:
        """Return why an image could not be fetched.

        Args:
            is_here: Whether the image is on this machine all the same, of an earlier fetch.
        """

    def make_network(self, name: str) -> ContainerCommand:
        """Return the command that makes a network, unless it is there."""

    def remove_network(self, name: str) -> ContainerCommand:
        """Return the command that removes a network."""

    def start(self, run: ImageRun, name: str) -> ContainerCommand:
        """Return the command that runs a container until its end, and removes it then.

        If it names a working directory, that is made for this start; otherwise any will do.
        """

    def kill(self, name: str) -> ContainerCommand:
        """Return the command that kills a container; it fails if there is none."""

    def remove(self, name: str) -> ContainerCommand:
        """Return the command that removes a container whatever its state; if there is none, it changes nothing."""

    def failure(self, run: ImageRun, name: str, code: int, output: str) -> SpawnError | None:
        """Return why a container did not start; None when its program ran, and the exit code is that of the program."""

    def ran_out_of_memory(self, name: str) -> bool:
        """Return whether the runtime has noted that a container took more memory than its limit."""

    def forget(self, name: str) -> None:
        """Remove the notes about a container that has ended."""


_PATIENCE_SECONDS = 20.0
"""How long the runtime may take to kill or remove; then we continue without it, and the next engine removes."""

_KILLED = 137
_OF_THE_RUNTIME = frozenset({125, 126, 127})
"""Exit codes of a client whose container did not start. Programs may exit with them too."""


class ImageProcess:
    """Names each start of a container and calls its runtime for further actions. Lives on the loop."""

    def __init__(self, run: ImageRun, runtime: ImageRuntime, *, processes: Processes, loop: Loop) -> None:
        self._run = run if run.pull is Pull.NEVER else replace(run, pull=Pull.MISSING)  # it was fetched before
        self._runtime = runtime
        self._processes = processes
        self._loop = loop
        self._starts = 0

    def next_command(self) -> ContainerCommand:
        """Return the command of the next start; a container of an earlier one may still be on its way out."""
        self._starts += 1
        return self._runtime.start(self._run, self._name)

    def kill(self, otherwise: Callable[[], object]) -> None:
        """Kill the container.

        Args:
            otherwise: Called when that failed, as while the image is still fetched.
        """
        self._execute(self._runtime.kill(self._name), lambda done: None if done else otherwise())

    def failure(self, code: int, output: str) -> SpawnError | None:
        """Return why the container did not start; None when it did."""
        return self._runtime.failure(self._run, self._name, code, output) if code else None

    def exit_text(self, ended: ProcessExit) -> str:
        if ended.code != _KILLED or self._run.memory_bytes is None or ended.lost:
            return str(ended)
        limit = f"{self._run.memory_bytes / 2**20:g}Mi"
        if self.ran_out_of_memory(ended):
            return f"{OUT_OF_MEMORY}: its limit is {limit}"
        return f"was killed by SIGKILL, probably for want of memory: its limit is {limit}"

    def ran_out_of_memory(self, ended: ProcessExit) -> bool:
        """Return whether it was killed because it took more memory than its limit; false if unknown."""
        return ended.code == _KILLED and not ended.lost and self._runtime.ran_out_of_memory(self._name)

    def clear(self, ended: ProcessExit, then: Callable[[], None]) -> None:
        """Remove remains of the container, and call `then`. A client that came to its end has removed it."""
        self._runtime.forget(self._name)
        if ended.lost or ended.signal or ended.code in _OF_THE_RUNTIME:
            self._execute(self._runtime.remove(self._name), lambda _done: then())
        else:
            then()

    @property
    def _name(self) -> str:
        return f"{self._run.name}-{self._starts}"

    def _execute(self, command: ContainerCommand, then: Callable[[bool], object]) -> None:
        """Run a command of the runtime and say, once and on the loop, whether it succeeded."""
        waiting = [then]

        def answer(done: bool) -> None:
            timer.cancel()
            if waiting:
                waiting.pop()(done)

        timer = self._loop.call_later(_PATIENCE_SECONDS, partial(answer, False))
        execute(command, self._processes, lambda done: self._loop.call_soon(partial(answer, done)))


def execute(command: ContainerCommand, processes: Processes, then: Callable[[bool], None] = lambda _done: None) -> None:
    """Run a command beside everything else, and say from any thread whether it succeeded."""
    output = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        start = processes.launch(
            Command(command.argv, command.env), output, on_exit=lambda _handle, exit_: then(exit_.code == 0)
        )
    except KatibError:
        then(False)
        return
    finally:
        os.close(output)
    start.answer.add_done_callback(lambda future: then(False) if future.exception() else None)
