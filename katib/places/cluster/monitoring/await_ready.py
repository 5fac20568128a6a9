"""Waits for another process of the same container, as the command of a startup probe.

A failed probe is a warning in the events of its pod. This one waits instead, for as long as a start may take, and fails
only then: `python -m katib.places.cluster.monitoring.await_ready http://127.0.0.1:18080/readyz 60`. An address
`tcp://HOST:PORT` is ready when a process listens there.
"""

from __future__ import annotations

import http.client
import socket
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

_PAUSE_SECONDS = 0.1
_ANSWER_SECONDS = 5.0


def await_ready(url: str, seconds: float) -> bool:
    """Return True once an address is ready, False if it is not ready in time."""
    until = time.monotonic() + seconds
    while not is_ready(url):
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def is_ready(url: str) -> bool:
    """Return whether a page answers with 200, or a port is open."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    try:
        if parts.scheme == "tcp":
            socket.create_connection((host, port), _ANSWER_SECONDS).close()
            return True
        connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", parts.path or "/")
            return connection.getresponse().status == HTTPStatus.OK
        finally:
            connection.close()
    except (OSError, http.client.HTTPException):
        return False


def main(arguments: Sequence[str]) -> int:
    """Wait as the arguments specify; return the exit code of the probe."""
    url, seconds = arguments
    return 0 if await_ready(url, float(seconds)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
