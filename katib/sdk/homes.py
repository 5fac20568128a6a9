"""Where `katib.create` has an experiment: on a server, or in an engine of this process.

One engine works in a data directory, so all experiments of this process that are there share it. It ends when the last
of them is closed, and with the process.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from katib.errors import invalid
from katib.sdk.drawing import DEFAULT_SERVER, Place
from katib.tuning.service import TuningService


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

    if place.server is not None and place.data_dir is not None:
        raise invalid("server", "it is given beside data_dir", "give one of them", "plot-place")
    directory = Path(place.data_dir or os.environ.get("KATIB_HOME") or ".katib").absolute()
    server, token = place.server, os.environ.get("KATIB_TOKEN")
    if server is None and place.data_dir is None:
        server = os.environ.get("KATIB_SERVER")
    if server is None:
        note = next(iter(running_servers(directory)), None)
        if note is None and place.data_dir is None:
            note = note_of(DEFAULT_SERVER, account_directory())
        if note is not None:
            server, token = note.url, token or note.token
    if server is None:
        with _engine_of(directory) as service:
            yield service
        return
    from katib.rest.client import HttpTuningService

    with HttpTuningService(server, token) as service:
        yield service


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
