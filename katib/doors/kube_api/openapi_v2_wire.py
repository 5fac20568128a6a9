"""OpenAPI 2 as protobuf, the only form in which older clients in Go read it: gnostic's `openapi.v2.Document`. Pure.

Only what `katib.doors.kube_api.openapi` writes has a place here. A message is described by its fields: number, and how
the value is written. Source of the numbers: `openapiv2/OpenAPIv2.proto` of google/gnostic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Clients ask for it with an @ before the second version, which is not a media type that they can read."""

Write = Callable[[Any], bytes]
Fields = Mapping[str, tuple[int, Write]]

_LENGTH_DELIMITED = 2


def document(swagger: Mapping[str, Any]) -> bytes:
    """Return the message of a description."""
    return _message(_DOCUMENT)(swagger)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits in each byte
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _flag(number: int, value: bool) -> bytes:
    return _varint(number << 3) + _varint(int(value))


def _text(value: Any) -> bytes:
    return str(value).encode()


def _message(fields: Fields, extensions: int = 0) -> Write:
    """Return what writes a map as a message; extensions begin with `x-` and go into the field of that number."""

    def write(value: Any) -> bytes:
        return b"".join(parts(value))

    def parts(value: Mapping[str, Any]) -> Iterator[bytes]:
        for name, part in value.items():
            if name.startswith("x-") and extensions:
                yield _field(extensions, _field(1, name.encode()) + _field(2, _field(2, json.dumps(part).encode())))
            elif name in fields:
                number, inner = fields[name]
                for element in part if isinstance(part, list) else [part]:
                    yield _flag(number, element) if element is True else _field(number, inner(element))

    return write


def _named(inner: Write, number: int = 1) -> Write:
    """Return what writes a map as pairs of a name and a value."""

    def write(value: Mapping[str, Any]) -> bytes:
        return b"".join(
            _field(number, _field(1, name.encode()) + _field(2, inner(part))) for name, part in value.items()
        )

    return write


def _within(inner: Write) -> Write:
    """Return what writes a value as the first field of a message around it."""
    return lambda value: _field(1, inner(value))


def _schema(value: Mapping[str, Any]) -> bytes:
    return _message(_SCHEMA, 31)(value)


def _parameter(value: Mapping[str, Any]) -> bytes:
    if value["in"] == "body":
        return _field(1, _field(1, _message(_BODY)(value)))
    number, fields = (3, _QUERY) if value["in"] == "query" else (4, _PATH)
    return _field(1, _field(2, _field(number, _message(fields)(value))))


_SCHEMA: Fields = {
    "$ref": (1, _text),
    "format": (2, _text),
    "description": (4, _text),
    "required": (19, _text),
    "additionalProperties": (21, _within(_schema)),
    "type": (22, _within(_text)),
    "items": (23, _within(_schema)),
    "properties": (25, _named(_schema)),
}
_BODY: Fields = {"name": (2, _text), "in": (3, _text), "required": (4, _text), "schema": (5, _schema)}
_QUERY: Fields = {"in": (2, _text), "name": (4, _text), "type": (6, _text)}
_PATH: Fields = {"required": (1, _text), "in": (2, _text), "name": (4, _text), "type": (5, _text)}
_OPERATION: Write = _message(
    {
        "operationId": (5, _text),
        "consumes": (7, _text),
        "parameters": (8, _parameter),
        "responses": (9, _named(_within(_message({"description": (1, _text)})))),
    },
    13,
)
_ITEM: Write = _message(
    {
        "get": (2, _OPERATION),
        "put": (3, _OPERATION),
        "post": (4, _OPERATION),
        "delete": (5, _OPERATION),
        "patch": (8, _OPERATION),
        "parameters": (9, _parameter),
    }
)
_DOCUMENT: Fields = {
    "swagger": (1, _text),
    "info": (2, _message({"title": (1, _text), "version": (2, _text)})),
    "paths": (8, _named(_ITEM, 2)),
    "definitions": (9, _named(_schema)),
}
