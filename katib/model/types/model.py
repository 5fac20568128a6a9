"""Base of all types: decoding, encoding, and the kinds of text and numbers in their fields."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any, Self

from msgspec import Meta, Struct, ValidationError, convert, field, json

from katib.model.types.fitting import ANY_SCALAR, FURTHER, fitted, spread


@lru_cache(maxsize=256)
def format_time(value: datetime) -> str:
    """Return RFC 3339 text in UTC with whole seconds, the form of every time in an object."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Time = Annotated[datetime, Meta(tz=True)]
"""In whole seconds and UTC."""
DecimalText = Annotated[str, Meta(extra={ANY_SCALAR: "number"})]
"""Accepts a bare number as text, as Katib does: `min: 0.01` means `min: "0.01"`."""
PlainText = Annotated[str, Meta(extra={ANY_SCALAR: "whole"})]
"""Accepts a whole number as text, in a list of choices or a setting: `[1, 2]` means `["1", "2"]`.

A parser turns `3.10` and `on` into 3.1 and true, so their text is lost, unless we parse it ourselves.
"""
Int32 = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
"""A count as the wire carries it; `"3"`, `true` and `3.0` are not accepted."""
Number = float
Flag = bool

_FURTHER = FURTHER.encode()

_prepared: set[type] = set()
_preparing = Lock()


def prepare(cls: type) -> None:
    """Make msgspec inspect a type, which it does at the first use: two threads that do so at once crash it.

    Call it before every use of a type that may be the first one.
    """
    with _preparing:
        if cls not in _prepared:
            with suppress(ValidationError):
                convert({}, cls)
            _prepared.add(cls)


class Model(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all types: camel case on the wire, frozen, unknown fields ignored (they are reported at submission)."""

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Self:
        """Read the JSON form.

        Raises:
            msgspec.ValidationError: A field has the wrong type.
        """
        if cls not in _prepared:
            prepare(cls)
        try:
            return convert(obj, cls)
        except ValidationError:  # or it has a rare form: a number in place of text, a field of a newer version
            return convert(fitted(obj, cls), cls)

    def encode(self) -> dict[str, Any]:
        """Return the JSON form, without empty values."""
        text = json.encode(self)
        obj: dict[str, Any] = json.decode(text)
        return spread(obj) if _FURTHER in text else obj


class OpenModel(Model, frozen=True, forbid_unknown_fields=True):
    """A type that others write, too: unknown fields, such as those of a newer version, survive a round trip."""

    further: dict[str, Any] = field(default_factory=dict, name=FURTHER)
