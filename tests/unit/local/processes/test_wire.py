from __future__ import annotations

import os
import socket
import struct

from hypothesis import given
from hypothesis import strategies as st

from katib.places.machine.processes import wire

VALUES = st.recursive(
    st.none() | st.integers() | st.binary(max_size=50) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.binary(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4).map(tuple), min_size=1, max_size=5), st.integers(1, 64))
def test_messages_arrive_whole_however_the_stream_is_cut(messages: list[wire.Message], cut: int) -> None:
    left, right = socket.socketpair()
    with left, right:
        for message in messages:
            wire.send(left, wire.pack(message))
        left.shutdown(socket.SHUT_WR)
        stream = b"".join(iter(lambda: right.recv(1 << 16), b""))
    left, right = socket.socketpair()
    with left, right:
        receiver, got = wire.MessageReceiver(right), []
        for start in range(0, len(stream), cut):
            left.sendall(stream[start : start + cut])
            got += receiver.receive() or []

    assert got == messages


def test_descriptors_arrive_in_order_and_are_not_inherited() -> None:
    left, right = socket.socketpair()
    pipes = [os.pipe() for _ in range(2)]
    with left, right:
        for number, (_, write) in enumerate(pipes):
            wire.send(left, wire.pack(("take", number)), (write,))
        receiver, got = wire.MessageReceiver(right), []
        while len(got) < 2:
            got += receiver.receive() or []
        fds = [receiver.take_fds()[0] for _ in range(2)]

    assert got == [("take", 0), ("take", 1)]
    assert not any(os.get_inheritable(fd) for fd in fds)
    for fd, (read, write) in zip(fds, pipes, strict=True):
        os.write(fd, struct.pack("i", fd))
        assert os.read(read, 4) == struct.pack("i", fd)
        for used in (fd, read, write):
            os.close(used)


def test_the_end_of_the_stream_is_told_apart_from_silence() -> None:
    left, right = socket.socketpair()
    with right:
        left.close()

        assert wire.MessageReceiver(right).receive() is None
