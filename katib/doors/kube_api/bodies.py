"""Bodies and query parameters of requests. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from katib.doors.kube_api.objects import WriteOptions
from katib.doors.kube_api.patches import APPLY_PATCH, PATCHES
from katib.doors.kube_api.protobuf import MEDIA_TYPE, read_protobuf
from katib.doors.kube_api.statuses import StatusError, bad_request
from katib.errors import InvalidError
from katib.model.written import read_objects

MAX_BYTES = 3 * 2**20
"""An API server's limit."""

_JSON, _YAML = "application/json", "application/yaml"
_VALIDATIONS = ("Ignore", "Warn", "Strict")
_LARGEST_WHOLE = 1e21
"""From this size on, programs in Go write a float with its exponent."""

_LONGEST_TIMEOUT = 1e6

Query = Mapping[str, str]


def media_type_of(content_type: str) -> str:
    """Return the media type of a Content-Type header; JSON by default."""
    return content_type.partition(";")[0].strip().lower() or _JSON


def read_body(body: bytes, media_type: str, *, is_custom: bool = False) -> Any:
    """Return the value of a body.

    Args:
        body: The bytes.
        is_custom: Whether it is for a custom kind, whose whole numbers may be written as `8.0`. Clients that keep all
            numbers as floats write them so, and an API server accepts them, but not for built-in kinds.

    Raises:
        StatusError: It is too large, of an unsupported media type, or malformed.
    """
    if len(body) > MAX_BYTES:
        raise StatusError(413, f"the body has {len(body)} bytes, the limit is {MAX_BYTES}")
    if media_type in (_YAML, APPLY_PATCH):
        return _read_yaml(body)
    if media_type == MEDIA_TYPE:
        return read_protobuf(body)
    if media_type not in (_JSON, *PATCHES):
        raise StatusError(415, f"a body of {media_type} is not understood; send {_JSON} or {_YAML}")
    try:
        return msgspec.json.Decoder(float_hook=_number if is_custom else None).decode(body)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from error


def _number(text: str) -> float | int:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is too large")
    return int(value) if value.is_integer() and abs(value) < _LARGEST_WHOLE else value


def _read_yaml(body: bytes) -> Any:
    try:
        documents = read_objects(body, "body")
    except InvalidError as error:
        raise bad_request(f"the body is not YAML: {error}") from error
    if len(documents) != 1:
        raise bad_request(f"the body holds {len(documents)} objects; send one")
    return documents[0].data


def options_of(query: Query, delete_options: Any = None) -> WriteOptions:
    """Return the options of a write.

    Args:
        query: Parameters of the request.
        delete_options: DeleteOptions, which may request a dry run, too.

    Raises:
        StatusError: A parameter has an invalid value.
    """
    dry_run = query.get("dryRun", "")
    named = delete_options.get("dryRun") if isinstance(delete_options, dict) else None
    if dry_run not in ("", "All"):
        raise StatusError(422, f'dryRun: {dry_run!r} is not known; "All" is')
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _VALIDATIONS:
        raise bad_request(f"fieldValidation: {validation!r} is not one of {', '.join(_VALIDATIONS)}")
    return WriteOptions(bool(dry_run or named), validation, query.get("fieldManager", ""), flag(query, "force"))


def flag(query: Query, name: str) -> bool:
    """Return whether a parameter is set; an API server accepts any value except these two."""
    return query.get(name, "false").lower() not in ("0", "false")


def number(query: Query, name: str) -> int | None:
    """Return a whole number, None if there is none.

    Raises:
        StatusError: It is not a valid number.
    """
    text = query.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or float(text) > _LONGEST_TIMEOUT:
        raise bad_request(f"{name}: {text[:40]!r} is not a number from 0 to {_LONGEST_TIMEOUT:.0f}")
    return int(text)
