"""Ports for servers that have to be told one before they start."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_FIRST = 12_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_taken: set[int] = set()
_choice = random.SystemRandom()


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on, another one with each call.

    It lies below those that the system gives to connections and to servers without a wish: one of those could be in use
    by the time the server starts.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = _choice.randrange(_FIRST, max(end, _FIRST + 1000))
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        if port not in _taken:
            _taken.add(port)
            return port
