"""What every type has in common: how it is read, how it is written, and the texts and numbers it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, Strict
from pydantic.alias_generators import to_camel


@lru_cache(maxsize=256)
def format_time(value: datetime) -> str:
    """Return RFC 3339 text in UTC with whole seconds, the form of every time in an object."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _decimal_text(value: object) -> object:
    """Accept a bare YAML number where Katib wants text: `min: 0.01` means `min: "0.01"`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _plain_text(value: object) -> object:
    """Accept any YAML scalar in a list of choices or a setting: `[1, 2]` means `["1", "2"]`, `true` means `"true"`."""
    if isinstance(value, bool):
        return str(value).lower()
    return _decimal_text(value)


Time = Annotated[datetime, PlainSerializer(format_time)]
DecimalText = Annotated[str, BeforeValidator(_decimal_text)]
PlainText = Annotated[str, BeforeValidator(_plain_text)]
Int32 = Annotated[int, Strict(), Field(ge=-(2**31), lt=2**31)]
"""A count as the wire carries it; `"3"`, `true` and `3.0` are none."""
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]


class Model(BaseModel):
    """Base of all types: camel case on the wire, frozen, foreign fields ignored (they are reported at submission)."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        defer_build=True,  # a process that reads Trials does not pay for compiling an Experiment
    )

    @classmethod
    def decode(cls, obj: Mapping[str, Any]) -> Self:
        """Read the JSON form.

        Raises:
            pydantic.ValidationError: A field has the wrong type.
        """
        return cls.model_validate(obj)

    def encode(self) -> dict[str, Any]:
        """Return the JSON form, without what is empty."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


class OpenModel(Model):
    """A type that others write, too: fields that we do not know, as a newer version may have, survive a round trip."""

    model_config = ConfigDict(extra="allow")
