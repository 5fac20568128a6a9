"""Sockets of drivers, which outlive nobody."""

from __future__ import annotations

import socket

from katib.sql_server.connecting import DriverSocket


def test_what_can_not_be_sent_any_more_keeps_no_stream_open() -> None:
    ours, theirs = socket.socketpair()
    line = DriverSocket(ours)
    stream = line.makefile("rwb")
    stream.write(b"good-bye")
    theirs.close()

    line.close()
    line.close()

    assert stream.closed
    assert ours.fileno() == -1


def test_a_socket_without_stream_is_closed() -> None:
    ours, theirs = socket.socketpair()
    DriverSocket(ours).close()

    assert theirs.recv(1) == b""
    theirs.close()
