"""The door of a run: a Unix socket in the data directory, at which commands of this account reach `katib run`.

A run is there for its own experiment, so it leaves no note of a server. The application is imported with the first
connection: most runs have none.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from katib.wire.serving.listening import BACKLOG, App, Message, Receive, Send, ServerThread

if TYPE_CHECKING:
    from katib.service.tuning.service import TuningService

_SOCKET = "run.sock"
_CONNECT_SECONDS = 5.0

_log = logging.getLogger(__name__)


@contextmanager
def open_door(service: TuningService, directory: Path) -> Iterator[None]:
    """Answer at the socket of a directory, which belongs to this process alone; one that cannot be made is left out."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(_place(directory))
            Path(place).unlink(missing_ok=True)  # of a run that was killed
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            stack.callback(listening.close)
            listening.bind(place)
            Path(place).chmod(0o600)
            listening.listen(BACKLOG)
        except OSError as error:
            _log.info("No command can reach this run", extra={"directory": str(directory), "cause": error.strerror})
        else:
            stack.callback(Path(place).unlink, missing_ok=True)
            stack.callback(ServerThread(_when_asked(service), [listening], "katib-door", at_once=False).close)
        yield


@contextmanager
def reached_door(directory: Path) -> Iterator[str | None]:
    """Give the path of the socket at which a run answers, to be used in this context; None if there is none."""
    with ExitStack() as stack:
        found = None
        with suppress(OSError):
            place = stack.enter_context(_place(directory))
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
                trying.settimeout(_CONNECT_SECONDS)
                trying.connect(place)
                found = place
        yield found


@contextmanager
def _place(directory: Path) -> Iterator[str]:
    """Give the path of the socket, as short as a socket needs it wherever the directory is."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


def _when_asked(service: TuningService) -> App:
    """Return the web application of a service, made for its first request."""
    made: list[Callable[[Message, Receive, Send], object]] = []

    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        if not made:
            from katib.doors.rest.app import create_app

            made.append(create_app(service))
        await made[0](scope, receive, send)  # type: ignore[misc]

    return answer
