"""Calls that are to be refused, over gRPC and in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest

from katib.errors import InvalidError, KatibError, code_of

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def refusal(call: Callable[..., object], *arguments: object, **named: object) -> tuple[grpc.StatusCode, str]:
    """Return the code and the words with which a call fails."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **named)
    assert isinstance(caught.value, grpc.Call)
    return caught.value.code(), caught.value.details()


def origins_of(error: KatibError) -> list[str]:
    """Return the origins of field errors, or the reason of another error."""
    return [each.origin for each in error.errors] if isinstance(error, InvalidError) else [code_of(error).reason]


@contextmanager
def refused(*origins: str) -> Iterator[None]:
    """Expect an InvalidError whose errors have these origins, in any order."""
    with pytest.raises(InvalidError) as caught:
        yield
    assert sorted(origins_of(caught.value)) == sorted(origins)
