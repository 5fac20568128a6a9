"""Conversion between KatibError and gRPC status.

The class of an error decides the status code (`katib.errors.ERROR_CODES`), its text becomes the details, one line per
field error. Field errors are also sent in trailing metadata, so that path, remedy and origin survive between Katib's
own endpoints; any other client still reads the lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from katib.errors import (
    ERROR_CODES,
    FieldError,
    InternalError,
    InvalidError,
    KatibError,
    TerminalError,
    UnavailableError,
    code_of,
    one_line,
    shortage_of,
)

FIELD_ERRORS_KEY = "katib-field-errors-bin"
"""Trailing metadata: JSON list of [path, cause, remedy, origin]. The suffix `-bin` allows arbitrary bytes."""

Metadata = tuple[tuple[str, str | bytes], ...]

# gRPC peers accept 8 KiB of headers by default; details are percent-encoded, so leave room for that and other headers.
_MAX_DETAILS = 2000
_MAX_FIELD_ERRORS = 3000

_NO_GRPC = "Received http2 header with status"
"""Prefix of the details of a status that gRPC's core derived from an HTTP status."""

_CODES = {code.name: code for code in grpc.StatusCode}

_CLASSES: dict[grpc.StatusCode, type[KatibError]] = {
    _CODES[code.grpc_code]: cls for cls, code in ERROR_CODES.items() if cls not in (InvalidError, KatibError)
}
_CLASSES |= dict.fromkeys(
    (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
    ),
    UnavailableError,
)
_CLASSES |= dict.fromkeys(
    (
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.DATA_LOSS,
    ),
    TerminalError,
)


@dataclass(frozen=True, slots=True)
class CallStatus:
    """Status of a gRPC call."""

    code: grpc.StatusCode
    details: str = ""
    metadata: Metadata = ()


def status_of_call(call: Any) -> CallStatus:
    """Return the status of a completed call.

    An HTTP server without gRPC, such as a gateway that does not have the route yet, is not the called service: gRPC
    derives UNIMPLEMENTED from its 404, as if the service had no such method.
    """
    code, details = call.code(), call.details() or ""
    if details.startswith(_NO_GRPC):
        code, details = grpc.StatusCode.UNAVAILABLE, f"what answers there does not speak gRPC ({details})"
    return CallStatus(code, details, tuple(call.trailing_metadata() or ()))


def status_of(error: BaseException) -> CallStatus:
    """Return the status that carries an error over the wire; a foreign exception is an internal error."""
    code = _CODES[code_of(error).grpc_code]
    details = (str(shortage_of(error) or error) or type(error).__name__)[:_MAX_DETAILS]
    if isinstance(error, InvalidError):
        return CallStatus(code, details, ((FIELD_ERRORS_KEY, _pack(error.errors)),))
    return CallStatus(code, details)


def error_of(status: CallStatus, *, peer: str, path: str = "request") -> KatibError:
    """Return the error for a status.

    Args:
        status: Any status except OK.
        peer: Name of the peer, such as `suggestion service "tpe"`: the prefix of the message.
        path: Field to name if the peer refused the input without naming one.
    """
    if status.code is grpc.StatusCode.INVALID_ARGUMENT:
        return refusal(status, path=path)
    cls = _CLASSES.get(status.code, InternalError)
    return cls(f"{peer}: {one_line(status.details) or status.code.name}")


def refusal(status: CallStatus, *, path: str) -> InvalidError:
    """Return the field errors of a refused request: those in the metadata, else one per line of the details."""
    packed = next((value for key, value in status.metadata if key == FIELD_ERRORS_KEY), None)
    errors = _unpack(packed) if isinstance(packed, bytes) else ()
    if errors:
        return InvalidError(errors)
    lines = [line.strip() for line in status.details.splitlines() if line.strip()] or [status.code.name]
    return InvalidError(FieldError(path, line, "change it as the service asks", "service-refused") for line in lines)


def _pack(errors: Iterable[FieldError]) -> bytes:
    rows: list[list[str]] = []
    for error in errors:
        rows.append([error.path, error.cause, error.remedy, error.origin])
        if len(json.dumps(rows)) > _MAX_FIELD_ERRORS:
            rows.pop()
            break
    return json.dumps(rows).encode()


def _unpack(packed: bytes) -> tuple[FieldError, ...]:
    try:
        return tuple(FieldError(*map(str, row)) for row in json.loads(packed))
    except (ValueError, TypeError):
        return ()  # another program's metadata under this key: its details still have the cause
