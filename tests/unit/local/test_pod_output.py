"""What the log of a container tells about its failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from katib.local.pods.output import LogFile

FRAME = "  [bt] ({}) /usr/lib/python3.11/lib-dynload/_ctypes.so(+0xbd9e) [0x7faad10e7d9e]\n"
TRACE = "".join(map(FRAME.format, range(9)))


def log_of(path: Path, text: str) -> LogFile:
    log = LogFile(path)
    log.open()
    log.write(text.encode())
    log.close()
    return log


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\nOSError: [Errno 98] Address already in use\n",
        "DistNetworkError: The server socket has failed to listen. code: -98, name: EADDRINUSE\n",
        "jax.errors.JaxRuntimeError: UNKNOWN: Failed to start RPC server\n",
        "UnknownError: Could not start gRPC server\n",
        "lightgbm.basic.LightGBMError: Binding port 47595 failed\n",
        f"xgboost: bind failed: Address already in use\n{TRACE}",
    ],
    ids=["python", "torch", "jax", "tensorflow", "lightgbm", "xgboost"],
)
def test_a_port_that_is_taken_is_recognized_in_what_frameworks_print(tmp_path: Path, text: str) -> None:
    assert log_of(tmp_path / "log", "epoch=1 loss=2\n" * 1000 + text).names_address_in_use()


@pytest.mark.parametrize("text", ["", "ValueError: boom\n", "ConnectionRefusedError: [Errno 111] refused\n"])
def test_other_failures_are_not(tmp_path: Path, text: str) -> None:
    assert not log_of(tmp_path / "log", text).names_address_in_use()


def test_what_was_printed_long_before_the_end_does_not_count(tmp_path: Path) -> None:
    text = "bind: Address already in use\n" + "epoch=1 loss=2\n" * 1000

    assert not log_of(tmp_path / "log", text).names_address_in_use()


def test_a_log_that_could_not_be_written_says_nothing(tmp_path: Path) -> None:
    assert not LogFile(tmp_path / "missing" / "log").names_address_in_use()
