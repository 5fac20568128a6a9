"""Where experiments are kept: on a server, in a data directory that is only read, or in an engine of this process.

One engine works in a data directory, so all experiments of this process that are there share it. It ends when the last
of them is closed, and with the process.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from katib.errors import UnavailableError, invalid
from katib.tuning.argument_words import python_words
from katib.tuning.service import DEFAULT_NAMESPACE, TuningService

DEFAULT_SERVER = "http://127.0.0.1:8765"
"""Where `katib serve` listens by default."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an experiment is kept.

    Attributes:
        data_dir: A data directory; None: found as the command line finds it.
        server: The URL of a server; None: as above.
        namespace: Of the experiment.
    """

    data_dir: str | Path | None = None
    server: str | None = None
    namespace: str = DEFAULT_NAMESPACE


@dataclass(slots=True)
class _Shared:
    """An engine and how many experiments use it."""

    service: TuningService
    stack: ExitStack
    users: int = 0


@dataclass(slots=True)
class _Engines:
    """The engines of this process."""

    process: int = field(default_factory=os.getpid)
    by_directory: dict[Path, _Shared] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_engines = _Engines()


@contextmanager
def open_service(place: Place) -> Iterator[TuningService]:
    """Open what keeps experiments, to read them.

    A server or a data directory that was named, else that of $KATIB_SERVER, else the default server when one of this
    account runs, else $KATIB_HOME or `.katib` right here.

    Raises:
        InvalidError: Both were named.
        NotFoundError: The data directory holds no experiments.
        UnavailableError: No server answers, and there is no data directory.
    """
    with python_words(), _opened(place) as service:
        yield service


@contextmanager
def _opened(place: Place) -> Iterator[TuningService]:
    """Open what keeps experiments, as `open_service`."""
    from katib.rest.notes import account_directory, note_of

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
    from katib.local import open_offline

    yield open_offline(directory)


@contextmanager
def open_home(place: Place) -> Iterator[TuningService]:
    """Open what runs experiments whose trials this program evaluates.

    A server or a data directory that was named; else the server of $KATIB_SERVER; else the one that runs in the data
    directory, or the default server of this account; else an engine of this process.

    Raises:
        InvalidError: Both were named.
        TerminalError: Another program works in the data directory.
        UnavailableError: No server answers.
    """
    from katib.rest.notes import account_directory, note_of, running_servers

    directory, server, token = _named(place)
    directory = directory.absolute()
    if server is None:
        note = next(iter(running_servers(directory)), None)
        if note is None and place.data_dir is None:
            note = note_of(DEFAULT_SERVER, account_directory())
        if note is not None:
            server, token = note.url, token or note.token
    with python_words(), _engine_of(directory) if server is None else _client(server, token) as service:
        yield service


def _named(place: Place) -> tuple[Path, str | None, str | None]:
    """Return the data directory, the server and the token that a place or the environment names."""
    if place.server is not None and place.data_dir is not None:
        raise invalid("server", "it is given beside data_dir", "give one of them", "plot-place")
    server = place.server or (os.environ.get("KATIB_SERVER") if place.data_dir is None else None)
    return Path(place.data_dir or os.environ.get("KATIB_HOME") or ".katib"), server, os.environ.get("KATIB_TOKEN")


def _client(server: str, token: str | None) -> AbstractContextManager[TuningService]:
    from katib.rest.client import HttpTuningService

    return HttpTuningService(server, token)


@contextmanager
def _engine_of(directory: Path) -> Iterator[TuningService]:
    shared = _enter(directory)
    try:
        yield shared.service
    finally:
        _leave(directory, shared)


def _enter(directory: Path) -> _Shared:
    global _engines  # noqa: PLW0603 - of this process
    if _engines.process != os.getpid():  # the engines of a parent are not ours
        _engines = _Engines()
    with _engines.lock:
        shared = _engines.by_directory.get(directory)
        if shared is None:
            from katib.local import open_engine

            with ExitStack() as stack:
                engine = stack.enter_context(open_engine(data_dir=directory, own_process=False))
                engine.start()
                shared = _Shared(engine.service, stack.pop_all())
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
        shared.stack.close()
