"""Calls over gRPC that are to be refused."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def refusal(call: Callable[..., object], *arguments: object, **named: object) -> tuple[grpc.StatusCode, str]:
    """Return the code and the words with which a call fails."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, **named)
    assert isinstance(caught.value, grpc.Call)
    return caught.value.code(), caught.value.details()
