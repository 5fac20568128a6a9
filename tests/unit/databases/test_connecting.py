"""Connections of drivers, which outlive nobody."""

from __future__ import annotations

import socket
from types import SimpleNamespace

from katib.databases.connecting import _close


def test_what_can_not_be_sent_any_more_keeps_no_stream_open() -> None:
    ours, theirs = socket.socketpair()
    stream = ours.makefile("rwb")
    connection = SimpleNamespace(_sock=stream, _usock=ours)  # of pg8000
    stream.write(b"good-bye")
    theirs.close()

    _close(connection, stream.flush)
    _close(connection, stream.flush)

    assert stream.closed
    assert ours.fileno() == -1
