"""Errors: one tree, and one table with the codes of each class in every interface.

The class tells the caller how to proceed: fix the input, retry later, give up, or report a bug. A message is one line
with three parts that are kept apart until it is rendered: the path of the field, the cause with the offending value,
and the remedy. Retries pause according to a `Backoff`. Every room may import this module; it imports nothing of
Katib's.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error in the input.

    Attributes:
        path: JSON path without the leading dot: `spec.parameters[2].feasibleSpace.min`. A file name if the input has no
            fields yet.
        cause: The error, with the offending value.
        remedy: The remedy, as an imperative without a full stop.
        origin: Stable identifier of the broken rule in kebab case (`bounds-order`), for tests and for programs.
    """

    path: str
    cause: str
    remedy: str
    origin: str

    def __str__(self) -> str:
        text = f"{self.path}: {self.cause}; {self.remedy}"
        return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    """Escape characters that break a line or disturb a terminal: the parts of an error may quote any input."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


class KatibError(Exception):
    """Base of all errors that are meant for a user."""

    def _render_traceback_(self) -> list[str]:
        return user_traceback(self)


class CallError(KatibError, TypeError):
    """An unsupported function, or a call whose arguments do not fit."""


class InvalidError(KatibError):
    """The input breaks at least one rule; retrying without a change is useless."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(map(str, self.errors)))


def invalid(path: str, cause: str, remedy: str, origin: str) -> InvalidError:
    """Return an InvalidError with one field error; the arguments are those of `FieldError`."""
    return InvalidError([FieldError(path, cause, remedy, origin)])


class NotFoundError(KatibError):
    """The named object does not exist."""


class AlreadyExistsError(KatibError):
    """An object of that name exists."""


class ConflictError(KatibError):
    """The object changed since it was read: read it again and decide again."""


class ExpiredError(KatibError):
    """The revision to watch from is no longer kept: list again and watch from there."""


class UnavailableError(KatibError):
    """A dependency does not answer now; the same call may succeed later."""


class ShortageError(UnavailableError):
    """The machine, or an account on it, lacks a resource for now, such as memory.

    Attributes:
        lack: The lacking resource, always in the same words.
    """

    def __init__(self, lack: str, message: str) -> None:
        self.lack = lack
        super().__init__(message)


class OutcomeUnknownError(UnavailableError):
    """The connection broke while a write was being confirmed: it may have taken effect or not."""


class KindNotInstalledError(UnavailableError):
    """The cluster does not serve this kind now; it may once the kind is installed."""


class ForbiddenError(KatibError):
    """The caller may not do this; the message names the missing right. Retry once it is granted."""


class TerminalError(KatibError):
    """Retrying cannot help, although the input was accepted; a person has to act."""


class InternalError(KatibError):
    """A broken invariant inside the product: a bug to report."""


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """Codes of one class of error in each interface."""

    reason: str
    http_status: int
    grpc_code: str
    exit_code: int


ERROR_CODES: dict[type[KatibError], ErrorCode] = {
    InvalidError: ErrorCode("Invalid", 422, "INVALID_ARGUMENT", 2),
    NotFoundError: ErrorCode("NotFound", 404, "NOT_FOUND", 2),
    AlreadyExistsError: ErrorCode("AlreadyExists", 409, "ALREADY_EXISTS", 2),
    ConflictError: ErrorCode("Conflict", 409, "ABORTED", 1),
    ExpiredError: ErrorCode("Expired", 410, "OUT_OF_RANGE", 1),
    UnavailableError: ErrorCode("Unavailable", 503, "UNAVAILABLE", 1),
    ForbiddenError: ErrorCode("Forbidden", 403, "PERMISSION_DENIED", 1),
    TerminalError: ErrorCode("Terminal", 409, "FAILED_PRECONDITION", 1),
    InternalError: ErrorCode("Internal", 500, "INTERNAL", 1),
    KatibError: ErrorCode("Internal", 500, "UNKNOWN", 1),
}


def user_traceback(error: BaseException) -> list[str]:
    """Return the traceback for IPython and notebooks: only the user's own lines that led to the error.

    Their protocol is `_render_traceback_`. A bug of Katib's keeps all its lines.
    """
    entry = None if isinstance(error, InternalError) else error.__traceback__
    while entry is not None and (called := entry.tb_next) is not None:
        if called.tb_frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
            entry.tb_next, error.__cause__ = None, None  # the causes are internal as well
        entry = entry.tb_next
    table = sys.modules["IPython"].get_ipython().InteractiveTB
    lines: list[str] = table.structured_traceback(type(error), error, error.__traceback__, tb_offset=1)
    return lines


_LONGEST_LINE = 2_000
"""Limit of a gRPC status, and long enough for a reader."""


def one_line(error: object) -> str:
    """Return the text of an error or a response on one line, truncated if very long; field errors are joined."""
    text = "; ".join(map(str, error.errors)) if isinstance(error, InvalidError) else str(error)
    line = " ".join(text.split())
    line = line if line.isprintable() else "".join(map(_printable, line))
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."


def code_of(error: BaseException) -> ErrorCode:
    """Return the code of the nearest class in the table; a foreign exception is a shortage or an internal error."""
    for cls in type(error).__mro__:
        if cls in ERROR_CODES:
            return ERROR_CODES[cls]
    return ERROR_CODES[InternalError if shortage_of(error) is None else UnavailableError]


_NO_MEMORY = ("the machine has too little memory", "free memory or raise its limit")
_NO_PROCESSES = (
    "no more processes or threads can be started",
    "end some, free memory, or raise the limit of processes",
)
_NO_FILES = ("too many files are open", "raise the limit of open files")
_NO_ROOM = ("the disk is full", "free some space")

_SCARCE = {
    errno.ENOMEM: _NO_MEMORY,
    errno.EAGAIN: _NO_PROCESSES,
    errno.EMFILE: _NO_FILES,
    errno.ENFILE: _NO_FILES,
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
}
"""System errors that pass by themselves: the lacking resource, and the remedy."""

_WORDS = {
    **{os.strerror(number).lower(): lack for number, lack in _SCARCE.items()},
    "memoryerror": _NO_MEMORY,
    "bad_alloc": _NO_MEMORY,
    "failed to map segment": _NO_MEMORY,
    "cannot map zero-fill pages": _NO_MEMORY,
    "can't start new thread": _NO_PROCESSES,
}
"""The same in the words of the dynamic linker, of Python, and of programs that failed because of them."""

_LASTING = "static tls block"
"""The linker's message for libraries that cannot be loaded in this order, which it calls a lack of memory, too."""


def shortage_of(error: BaseException) -> ShortageError | None:
    """Return the shortage behind an exception; None if there is none, or for one of Katib's errors of another class.

    For a failed import the causes count as well: libraries wrap them in advice.
    """
    if isinstance(error, KatibError):
        return error if isinstance(error, ShortageError) else None
    words = str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        return _shortage(_NO_MEMORY, words)
    if isinstance(error, OSError) and error.errno in _SCARCE:
        return _shortage(_SCARCE[error.errno], words)
    cause = (error.__cause__ or error.__context__) if isinstance(error, ImportError) else None
    found = None if cause is None else shortage_of(cause)
    return found or (shortage_in(words) if isinstance(error, (ImportError, RuntimeError)) else None)


def shortage_in(text: str) -> ShortageError | None:
    """Return the shortage that another program's message reports, or None."""
    lower = text.lower()
    lacks = [lack for words, lack in _WORDS.items() if words in lower and _LASTING not in lower]
    return _shortage(lacks[0], text) if lacks else None


def shortage_by(number: int) -> ShortageError | None:
    return _shortage(_SCARCE[number], os.strerror(number)) if number in _SCARCE else None


def _shortage(lack: tuple[str, str], words: str) -> ShortageError:
    told = lack[0] in words  # by another of Katib's processes
    return ShortageError(lack[0], one_line(words if told else f"{lack[0]}: {words}; {lack[1]}"))


_MOST_STEPS = 64  # all pauses have reached their limit by then; keeps the power from overflowing


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses after consecutive failures: a pure function of their number.

    Attributes:
        factor: Growth of the pause per further failure.
        jitter: Maximum random reduction of a pause as a share, so that many clients do not retry at once.
    """

    first_seconds: float
    longest_seconds: float
    factor: float = 2.0
    jitter: float = 0.0

    def pause_seconds(self, failures: int, chance: float = 0.0) -> float:
        """Return the pause after this number of consecutive failures; 0 without a failure.

        Args:
            chance: Random number in [0, 1]: the part of the jitter to subtract.
        """
        if failures < 1:
            return 0.0
        seconds = min(self.first_seconds * self.factor ** min(failures - 1, _MOST_STEPS), self.longest_seconds)
        return seconds * (1.0 - self.jitter * chance)
