"""The part of a container in an image that its process cannot do: names, the end by force, what is left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from katib.api.failure_text import OUT_OF_MEMORY
from katib.errors import KatibError
from katib.local.pods.environment import ContainerCommand
from katib.local.pods.images import ImageRun, ImageRuntime, Pull
from katib.local.pods.loop import Loop, Timer
from katib.local.processes.client import Processes
from katib.local.processes.handle import Exit
from katib.local.processes.spawn_errors import SpawnError

_PATIENCE_SECONDS = 20.0
"""How long the runtime may take to kill or remove; then we go on without it, and the next engine removes."""

_KILLED = 137
_OF_THE_RUNTIME = frozenset({125, 126, 127})
"""Exit codes of a client whose container did not start. Programs may exit with them too."""


class ImageProcess:
    """Names each start of a container and asks its runtime for what has to be done beside it. Lives on the loop.

    Args:
        run: What runs.
        runtime: Which program runs it.
        processes: Starts that program.
        loop: Where callbacks are called.
    """

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

    def kill(self, otherwise: Callable[[], None]) -> None:
        """Kill what runs.

        Args:
            otherwise: Called when that failed, as while the image is still fetched.
        """
        self._execute(self._runtime.kill(self._name), lambda done: None if done else otherwise())

    def failure(self, code: int, output: str) -> SpawnError | None:
        """Return why the container did not start; None when it did."""
        return self._runtime.failure(self._run, self._name, code, output) if code else None

    def exit_text(self, ended: Exit) -> str:
        """Return how it ended, in words."""
        if ended.code != _KILLED or self._run.memory_bytes is None or ended.lost:
            return str(ended)
        limit = f"{self._run.memory_bytes / 2**20:g}Mi"
        if self.ran_out_of_memory(ended):
            return f"{OUT_OF_MEMORY}: its limit is {limit}"
        return f"was killed by SIGKILL, probably for want of memory: its limit is {limit}"

    def ran_out_of_memory(self, ended: Exit) -> bool:
        """Return whether it was killed because it took more memory than its limit; false where that is unknown."""
        return ended.code == _KILLED and not ended.lost and self._runtime.ran_out_of_memory(self._name)

    def clear(self, ended: Exit, then: Callable[[], None]) -> None:
        """Remove what may be left of the container, and call `then`. A client that came to its end has removed it."""
        self._runtime.forget(self._name)
        if ended.lost or ended.signal or ended.code in _OF_THE_RUNTIME:
            self._execute(self._runtime.remove(self._name), lambda _done: then())
        else:
            then()

    @property
    def _name(self) -> str:
        return f"{self._run.name}-{self._starts}"

    def _execute(self, command: ContainerCommand, then: Callable[[bool], None]) -> None:
        """Run a command of the runtime and say, once and on the loop, whether it succeeded."""
        call = _Once(then)
        timer: Timer = self._loop.call_later(_PATIENCE_SECONDS, lambda: call(done=False))

        def answer(*, done: bool) -> None:
            timer.cancel()
            call(done=done)

        execute(command, self._processes, lambda done: self._loop.call_soon(lambda: answer(done=done)))


def execute(command: ContainerCommand, processes: Processes, then: Callable[[bool], None] = lambda _done: None) -> None:
    """Run a command beside everything else, and say from any thread whether it succeeded."""
    output = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        start = processes.launch(
            command.argv, command.env, Path("/"), output, on_exit=lambda _handle, exit_: then(exit_.code == 0)
        )
    except KatibError:
        then(False)
        return
    finally:
        os.close(output)
    start.answer.add_done_callback(lambda future: then(False) if future.exception() else None)


class _Once:
    """Passes on the first call only."""

    def __init__(self, then: Callable[[bool], None]) -> None:
        self._then: Callable[[bool], None] | None = then

    def __call__(self, *, done: bool) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(done)
