"""The socket in the data directory for Optuna's clients of this account."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from katib.errors import InvalidError, TerminalError, UnavailableError, invalid

if TYPE_CHECKING:
    from katib.service.tuning.chosen_trials import ChosenTrials

SOCKET, PORT = "optuna.sock", 13000
"""An Optuna client takes a host and a port, and joins them by a colon: the file is `optuna.sock:13000`."""

LONGEST_PATH = 107
"""Maximum length in bytes of a Unix socket's path on Linux."""

_THREADS = 16
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_STOP_SECONDS = 1.0


def socket_path(directory: Path) -> Path:
    """Return the path of the socket of a data directory.

    Raises:
        InvalidError: The path is too long for a socket.
    """
    path = directory.absolute() / f"{SOCKET}:{PORT}"
    if (length := len(os.fsencode(path))) > LONGEST_PATH:
        cause = f"{path} has {length} bytes, and a Unix socket may have {LONGEST_PATH}"
        raise invalid("--data-dir", cause, "choose a shorter path, or a link to it", "socket-path")
    return path


def line_to_copy(directory: Path) -> str:
    """Return the expression that connects Optuna to the server of a data directory; empty if none listens."""
    try:
        path = socket_path(directory)
    except InvalidError:
        return ""
    return f'GrpcStorageProxy(host="unix:{path.with_name(SOCKET)}", port={PORT})' if path.is_socket() else ""


class StorageServer:
    """Listens on the socket of a data directory. A context manager.

    Raises (on entering):
        InvalidError: Its path is too long.
        UnavailableError: The socket cannot be created.
    """

    def __init__(self, trials: ChosenTrials, directory: Path) -> None:
        self._trials = trials
        self.path = socket_path(directory)

    def __enter__(self) -> Self:
        import grpc

        from katib.doors.optuna_storage.service import StorageService, handlers

        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise TerminalError(f"{self.path}: it is not a socket; move it away")
            self.path.unlink()  # left by a killed server: only one at a time uses a data directory
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="optuna-storage"), options=_UNLIMITED
        )
        self._server.add_generic_rpc_handlers((handlers(StorageService(self._trials)),))
        before = os.umask(0o177)  # other accounts must not connect, not even for a moment
        try:
            self._server.add_insecure_port(f"unix:{self.path}")
        except RuntimeError as error:
            raise UnavailableError(f"{self.path}: Optuna's clients cannot connect here: {error}") from error
        finally:
            os.umask(before)
        self._server.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.stop(_STOP_SECONDS).wait()
        with suppress(FileNotFoundError):
            self.path.unlink()
