"""Homes of experiments: a server, a data directory that is only read, or an engine.

One engine works in a data directory, so all experiments of this process there share it. It ends when the last of them
is closed, and with the process. Meanwhile other programs are its guests, through its socket; when it has ended, one of
them starts the next engine.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from katib.errors import Backoff, TerminalError, UnavailableError, invalid
from katib.service.drafting import python_words
from katib.service.tuning.sentences import said_once
from katib.service.tuning.service import DEFAULT_NAMESPACE, TuningService

if TYPE_CHECKING:
    from katib.places.machine import Engine

R = TypeVar("R")

DEFAULT_SERVER = "http://127.0.0.1:8765"
"""Default address of `katib serve`."""

PATIENCE_SECONDS = 120.0
"""How long requests to a service that does not answer are repeated: long enough for its restart."""

_RETRIES = Backoff(0.05, 5.0)


@dataclass(frozen=True, slots=True)
class ExperimentPlace:
    """The place of an experiment.

    Attributes:
        data_dir: A data directory; None: found as by the command line.
        server: The URL of a server; None: likewise.
        namespace: Namespace of the experiment; empty: the one that all experiments are in.
    """

    data_dir: str | Path | None = None
    server: str | None = None
    namespace: str = DEFAULT_NAMESPACE


class ExperimentHome:
    """A service for experiments whose trials this program evaluates. Thread-safe; close it after its last use.

    Args:
        service: The service.
        opened: Resources to close with it.
        host: The place to find the next home if this is the engine of another program, and ends with it.
    """

    def __init__(self, service: TuningService, opened: ExitStack, host: ExperimentPlace | None = None) -> None:
        self.service = service
        self.host = host
        self._opened = opened
        self._moving = threading.Lock()
        self._closed = False

    def call(self, request: Callable[[TuningService], R], *, patience_seconds: float = PATIENCE_SECONDS) -> R:
        """Return the answer to a request, which is repeated if it may be lost."""
        deadline, failures = time.monotonic() + patience_seconds, 0
        while True:
            service = self.service
            try:
                return request(service)
            except UnavailableError:
                if patience_seconds:
                    self._move_from(service)
                failures += 1
                pause = _RETRIES.pause_seconds(failures)
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)

    def first_call(self, request: Callable[[TuningService], R]) -> R:
        """Return the answer to a request, repeated only for the next home: another service may never answer."""
        return self.call(request, patience_seconds=PATIENCE_SECONDS if self.host is not None else 0.0)

    def close(self) -> None:
        """Close the opened resources. Closing twice is fine."""
        self._closed = True
        self._opened.close()

    def _move_from(self, service: TuningService) -> None:
        """Open the next home if the program of this one may have ended; the next may belong to this program."""
        with self._moving:
            if self.host is not None and self.service is service and not self._closed:
                found = open_home(self.host)
                self._opened.callback(found.close)
                self.service, self.host = found.service, found.host


@dataclass(slots=True)
class _Shared:
    """An engine with the number of experiments that use it."""

    engine: Engine
    stack: ExitStack
    users: int = 0


@dataclass(slots=True)
class _ProcessEngines:
    """The engines of this process."""

    process: int = field(default_factory=os.getpid)
    by_directory: dict[Path, _Shared] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_engines = _ProcessEngines()


@contextmanager
def open_service(place: ExperimentPlace) -> Iterator[TuningService]:
    """Open the service of experiments for reading.

    A named server or data directory, else that of $KATIB_SERVER, else the default server if one of this account runs,
    else $KATIB_HOME or `.katib` in the current directory.

    Raises:
        InvalidError: Both were named.
        NotFoundError: The data directory holds no experiments.
        UnavailableError: No server answers, and there is no data directory.
    """
    with python_words(), _opened(place) as service:
        yield service


@contextmanager
def _opened(place: ExperimentPlace) -> Iterator[TuningService]:
    from katib.doors.rest.notes import account_directory, note_of

    directory, server, token = _named(place)
    if server is None and place.data_dir is None and (note := note_of(DEFAULT_SERVER, directory, account_directory())):
        server, token = note.url, token or note.token
    if server is not None:
        with _client(server, token) as service:
            yield service
        return
    if not directory.is_dir():
        remedy = "give server= or data_dir=, or start `katib serve`"
        raise UnavailableError(f"no server of yours runs, and there is no data directory {directory}; {remedy}")
    from katib.places.machine import open_offline

    yield open_offline(directory)


def open_home(place: ExperimentPlace) -> ExperimentHome:
    """Open a home for experiments whose trials this program evaluates.

    A named server or data directory; else the server of $KATIB_SERVER; else the one of the data directory, or the
    default server of this account; else the engine of the data directory: of this process, or of another program that
    has one there.

    Raises:
        InvalidError: Both were named.
        UnavailableError: No server answers.
    """
    from katib.doors.rest.notes import account_directory, note_of, running_servers

    directory, server, token = _named(place)
    directory = directory.absolute()
    if server is None:
        note = next(iter(running_servers(directory)), None)
        if note is None and place.data_dir is None:
            note = note_of(DEFAULT_SERVER, account_directory())
        if note is not None:
            server, token = note.url, token or note.token
    with python_words(), ExitStack() as opened:
        if server is not None:
            return ExperimentHome(opened.enter_context(_client(server, token)), opened.pop_all())
        return _home_in(directory, ExperimentPlace(directory, namespace=place.namespace))


def say_what_is_waited_for(directory: Path, waiting: str) -> None:
    """Print that a program works in a data directory, and how to avoid waiting for it."""
    ways = "data_dir= with another one searches at once, and so do many programs beside one `katib serve`"
    sys.stderr.write(f"{waiting}, which works in {directory}; {ways}\n")


def _named(place: ExperimentPlace) -> tuple[Path, str | None, str | None]:
    """Return the data directory, the server and the token that a place or the environment names."""
    if place.server is not None and place.data_dir is not None:
        raise invalid("server", "it is given beside data_dir", "give one of them", "plot-place")
    server = place.server or (os.environ.get("KATIB_SERVER") if place.data_dir is None else None)
    return Path(place.data_dir or os.environ.get("KATIB_HOME") or ".katib"), server, os.environ.get("KATIB_TOKEN")


def _client(server: str, token: str | None = None, *, socket: str = "") -> AbstractContextManager[TuningService]:
    from katib.doors.rest.client import HttpTuningService

    return HttpTuningService(server, token, socket=socket)


def _home_in(directory: Path, place: ExperimentPlace) -> ExperimentHome:
    """Open the engine of this process in a data directory, or the one of another program there."""
    from katib.doors.rest.door import reached_door
    from katib.doors.rest.notes import running_servers
    from katib.places.machine import HeldError, in_turn

    def attempt() -> ExperimentHome:
        with ExitStack() as opened:
            try:
                return ExperimentHome(opened.enter_context(_engine_of(directory)).service, opened.pop_all())
            except HeldError:
                if (note := next(iter(running_servers(directory)), None)) is not None:
                    return ExperimentHome(opened.enter_context(_client(note.url, note.token)), opened.pop_all())
                door = opened.enter_context(reached_door(directory))
                if door is None:
                    raise
                return ExperimentHome(
                    opened.enter_context(_client("http://localhost", socket=door)), opened.pop_all(), place
                )

    return in_turn(attempt, partial(say_what_is_waited_for, directory))


@contextmanager
def engine_here(directory: Path) -> Iterator[Engine | None]:
    """Open the engine of this process's experiments in a directory; None if there is none."""
    if _engines.process != os.getpid() or directory not in _engines.by_directory:
        yield None
        return
    with _engine_of(directory) as engine:
        yield engine


@contextmanager
def _engine_of(directory: Path) -> Iterator[Engine]:
    shared = _enter(directory)
    try:
        yield shared.engine
    finally:
        _leave(directory, shared)


def _enter(directory: Path) -> _Shared:
    global _engines  # noqa: PLW0603 - of this process
    if _engines.process != os.getpid():  # the engines of a parent are not ours
        _engines = _ProcessEngines()
    with _engines.lock:
        shared = _engines.by_directory.get(directory)
        if shared is None:
            from katib.doors.rest.door import open_door
            from katib.places.machine import open_engine

            with ExitStack() as stack:
                stack.enter_context(said_once())
                engine = stack.enter_context(open_engine(data_dir=directory, own_process=False))
                engine.start_for(None)
                stack.enter_context(open_door(engine.service, directory))
                shared = _Shared(engine, stack.pop_all())
            _engines.by_directory[directory] = shared
            if len(_engines.by_directory) == 1:
                atexit.register(_close_all)
        shared.users += 1
        return shared


def _leave(directory: Path, shared: _Shared) -> None:
    engines = _engines
    if engines.process != os.getpid():
        return
    with engines.lock:
        shared.users -= 1
        if shared.users > 0 or engines.by_directory.get(directory) is not shared:
            return
        del engines.by_directory[directory]
    shared.stack.close()


def _close_all() -> None:
    engines = _engines
    if engines.process != os.getpid():
        return
    with engines.lock:
        left = list(engines.by_directory.values())
        engines.by_directory.clear()
    for shared in left:
        with suppress(TerminalError):  # of a deleted data directory
            shared.stack.close()
