"""Images are fetched before the containers that need them start, so that people see why a trial waits.

Containers that need the same image at the same time wait for one fetch. That an image is on this machine is asked once
for each; if it is removed later, the runtime fetches it again when it starts the container. Lives on the loop.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from katib.engine.runtime.clock import Clock
from katib.errors import KatibError, UnavailableError
from katib.places.machine.pods.image_runs import ImageRun, Pull
from katib.places.machine.pods.images import ImageRuntime, execute
from katib.places.machine.pods.loop import Loop
from katib.places.machine.processes.client import PendingStart, Processes
from katib.places.machine.processes.handle import Command, ProcessExit

_TAIL_BYTES = 8192


class PullNews(NamedTuple):
    """That an image is being fetched, or was.

    Attributes:
        image: As the template names it.
        seconds: How long it took; None while it is fetched.
        problem: Why it could not be fetched; empty when it was.
    """

    image: str
    seconds: float | None = None
    problem: str = ""


class _Waiter(NamedTuple):
    on_pull: Callable[[PullNews], None]
    then: Callable[[KatibError | None], None]


@dataclass(slots=True, eq=False)
class _Fetch:
    """One fetch and its waiters. Until it has `began`, the runtime is asked whether the image is here."""

    run: ImageRun
    waiters: list[_Waiter] = field(default_factory=list)
    began: float | None = None
    output: IO[bytes] | None = None
    start: PendingStart | None = None


class ImagePulls:
    """Fetches images.

    Args:
        runtime: Which program does it, and runs them.
        clock: Measures how long it takes.
    """

    def __init__(self, runtime: ImageRuntime, processes: Processes, loop: Loop, clock: Clock) -> None:
        self.runtime = runtime
        self._processes = processes
        self._loop = loop
        self._clock = clock
        self._here: set[str] = set()
        self._open: dict[tuple[str, Pull], _Fetch] = {}

    def is_ready(self, run: ImageRun) -> bool:
        """Return whether nothing has to be done before a container of this image starts."""
        return run.pull is Pull.NEVER or (run.pull is Pull.MISSING and run.image in self._here)

    def fetch(
        self, run: ImageRun, on_pull: Callable[[PullNews], None], then: Callable[[KatibError | None], None]
    ) -> Callable[[], None]:
        """Fetch an image unless it is on this machine, and return a function that gives this up.

        Args:
            on_pull: Called when it has to be fetched, and when that has ended; not after it was given up.
            then: Called later and once, with the error when the image cannot be had; not after it was given up.
        """
        key, waiter = (run.image, run.pull), _Waiter(on_pull, then)
        fetch = self._open.get(key)
        if fetch is None:
            fetch = self._open[key] = _Fetch(run, [waiter])
            self._loop.call_soon(lambda: self._begin(fetch))
        else:
            fetch.waiters.append(waiter)
            if fetch.began is not None:
                self._loop.call_soon(lambda: on_pull(PullNews(run.image)) if waiter in fetch.waiters else None)
        return lambda: self._give_up(fetch, waiter)

    def _give_up(self, fetch: _Fetch, waiter: _Waiter) -> None:
        if waiter in fetch.waiters:
            fetch.waiters.remove(waiter)
        if not fetch.waiters and self._is_open(fetch):
            del self._open[fetch.run.image, fetch.run.pull]
            self._kill(fetch)

    def _kill(self, fetch: _Fetch) -> None:
        start = fetch.start
        if start is None:
            return
        self._processes.withdraw(start)
        if start.answer.done() and not start.answer.cancelled() and start.answer.exception() is None:
            self._processes.kill_tree(start.answer.result())

    def _is_open(self, fetch: _Fetch) -> bool:
        return self._open.get((fetch.run.image, fetch.run.pull)) is fetch

    def _begin(self, fetch: _Fetch) -> None:
        if not self._is_open(fetch):
            return
        if fetch.run.pull is Pull.ALWAYS:
            self._pull(fetch)
            return
        found = self.runtime.has_image(fetch.run.image)
        execute(found, self._processes, lambda done: self._loop.call_soon(lambda: self._looked(fetch, done)))

    def _looked(self, fetch: _Fetch, is_here: bool) -> None:
        if not self._is_open(fetch):
            return
        if is_here:
            self._conclude(fetch, None)
        else:
            self._pull(fetch)

    def _pull(self, fetch: _Fetch) -> None:
        if fetch.began is None:
            fetch.began = self._clock.monotonic()
            for waiter in list(fetch.waiters):
                waiter.on_pull(PullNews(fetch.run.image))
        command = self.runtime.pull(fetch.run.image)
        try:
            fetch.output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the program has ended
            fetch.start = self._processes.launch(
                Command(command.argv, command.env),
                fetch.output.fileno(),
                on_exit=lambda _handle, exit_: self._loop.call_soon(lambda: self._ended(fetch, exit_)),
            )
        except (KatibError, OSError) as error:
            self._conclude(fetch, _as_error(error))
            return
        fetch.start.answer.add_done_callback(lambda _: self._loop.call_soon(lambda: self._answered(fetch)))

    def _answered(self, fetch: _Fetch) -> None:
        if not self._is_open(fetch):  # it was given up meanwhile
            self._kill(fetch)
        elif fetch.start is not None and (error := fetch.start.answer.exception()):
            self._conclude(fetch, _as_error(error))

    def _ended(self, fetch: _Fetch, exit_: ProcessExit) -> None:
        said = ""
        if fetch.output is not None:
            fetch.output.seek(max(0, fetch.output.seek(0, os.SEEK_END) - _TAIL_BYTES))
            said = fetch.output.read().decode(errors="replace")
            fetch.output.close()
        if not self._is_open(fetch):
            return
        if exit_.lost:
            self._pull(fetch)
        elif not exit_.code:
            self._conclude(fetch, None)
        elif fetch.run.pull is Pull.ALWAYS:
            found = self.runtime.has_image(fetch.run.image)
            execute(found, self._processes, lambda here: self._loop.call_soon(lambda: self._failed(fetch, said, here)))
        else:
            self._failed(fetch, said, is_here=False)

    def _failed(self, fetch: _Fetch, said: str, is_here: bool) -> None:
        if self._is_open(fetch):
            self._conclude(fetch, self.runtime.pull_failure(fetch.run, said, is_here=is_here))

    def _conclude(self, fetch: _Fetch, error: KatibError | None) -> None:
        del self._open[fetch.run.image, fetch.run.pull]
        if fetch.output is not None:
            fetch.output.close()
        if error is None:
            self._here.add(fetch.run.image)
        seconds = None if fetch.began is None else self._clock.monotonic() - fetch.began
        waiters, fetch.waiters = fetch.waiters, []
        for waiter in waiters:
            if seconds is not None:
                waiter.on_pull(PullNews(fetch.run.image, seconds, "" if error is None else str(error)))
            waiter.then(error)


def _as_error(error: BaseException) -> KatibError:
    return error if isinstance(error, KatibError) else UnavailableError(str(error))
