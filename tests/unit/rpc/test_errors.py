from __future__ import annotations

import json

import grpc
import pytest

from katib.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    FieldError,
    InternalError,
    InvalidError,
    KatibError,
    NotFoundError,
    TerminalError,
    UnavailableError,
)
from katib.wire.rpc.errors import FIELD_ERRORS_KEY, CallStatus, error_of, refusal, status_of

BOUNDS = FieldError("spec.parameters[0].feasibleSpace.min", "10 is above max 1", "swap the bounds", "bounds-order")
NAME = FieldError("metadata.name", '"A" is not a DNS label', "use lower case", "name-dns")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFoundError("no trial t"), grpc.StatusCode.NOT_FOUND),
        (AlreadyExistsError("e exists"), grpc.StatusCode.ALREADY_EXISTS),
        (ConflictError("e changed"), grpc.StatusCode.ABORTED),
        (ExpiredError("revision 4 is gone"), grpc.StatusCode.OUT_OF_RANGE),
        (UnavailableError("no answer"), grpc.StatusCode.UNAVAILABLE),
        (TerminalError("not installed"), grpc.StatusCode.FAILED_PRECONDITION),
        (InternalError("a bug"), grpc.StatusCode.INTERNAL),
    ],
    ids=lambda value: value.name if isinstance(value, grpc.StatusCode) else "",
)
def test_an_error_keeps_its_class_and_text_across_the_wire(error: KatibError, code: grpc.StatusCode) -> None:
    status = status_of(error)
    back = error_of(status, peer="the log")

    assert status.code is code
    assert type(back) is type(error)
    assert str(back) == f"the log: {error}"


def test_field_errors_travel_whole() -> None:
    status = status_of(InvalidError([BOUNDS, NAME]))
    back = error_of(status, peer="the service")

    assert status.code is grpc.StatusCode.INVALID_ARGUMENT
    assert status.details == f"{BOUNDS}\n{NAME}"
    assert isinstance(back, InvalidError)
    assert back.errors == (BOUNDS, NAME)


def test_a_refusal_in_plain_words_names_the_field_it_was_asked_about() -> None:
    error = refusal(
        CallStatus(grpc.StatusCode.INVALID_ARGUMENT, "unknown setting x\n\ngamma too large"), path="spec.algorithm"
    )

    assert [(e.path, e.cause, e.origin) for e in error.errors] == [
        ("spec.algorithm", "unknown setting x", "service-refused"),
        ("spec.algorithm", "gamma too large", "service-refused"),
    ]


def test_a_refusal_without_words_is_still_an_error() -> None:
    error = refusal(CallStatus(grpc.StatusCode.UNKNOWN), path="spec.algorithm")

    assert [e.cause for e in error.errors] == ["UNKNOWN"]


@pytest.mark.parametrize(
    "packed", [b"", b"junk", b"[1, 2]", b'[["a"]]', b"[]"], ids=["empty", "junk", "flat", "short", "none"]
)
def test_foreign_metadata_under_our_key_is_ignored(packed: bytes) -> None:
    status = CallStatus(grpc.StatusCode.INVALID_ARGUMENT, "bad", ((FIELD_ERRORS_KEY, packed),))

    assert [e.cause for e in refusal(status, path="spec").errors] == ["bad"]


def test_a_foreign_exception_is_an_internal_error() -> None:
    assert status_of(ZeroDivisionError("division by zero")) == CallStatus(grpc.StatusCode.INTERNAL, "division by zero")


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, UnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, UnavailableError),
        (grpc.StatusCode.UNIMPLEMENTED, TerminalError),
        (grpc.StatusCode.PERMISSION_DENIED, TerminalError),
        (grpc.StatusCode.UNKNOWN, InternalError),
    ],
    ids=lambda value: value.name if isinstance(value, grpc.StatusCode) else "",
)
def test_codes_that_we_never_send_have_a_class_too(code: grpc.StatusCode, cls: type[KatibError]) -> None:
    assert type(error_of(CallStatus(code, "why"), peer="p")) is cls


def test_a_thousand_field_errors_fit_into_the_headers_of_a_call() -> None:
    status = status_of(InvalidError([BOUNDS] * 1000))

    packed = dict(status.metadata)[FIELD_ERRORS_KEY]
    assert len(status.details) <= 2000
    assert len(packed) <= 3000
    assert json.loads(packed)[0] == [BOUNDS.path, BOUNDS.cause, BOUNDS.remedy, BOUNDS.origin]
