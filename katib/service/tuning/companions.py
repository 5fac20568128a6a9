"""ConfigMaps, Secrets and training runtimes that are submitted together with an experiment."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from katib.errors import FieldError


def has_content(stored: Mapping[str, Any], companion: Mapping[str, Any]) -> bool:
    """Return whether a stored companion has the content of a submitted one.

    Additions of a server, such as the type of a Secret or defaults in the spec of a runtime, are no difference.
    """
    others = {"metadata", "data", "stringData", "binaryData"}
    return all(_holds(stored.get(field), value) for field, value in companion.items() if field not in others) and (
        _values(stored) == _values(companion)
    )


def _holds(stored: object, given: object) -> bool:
    if isinstance(stored, Mapping) and isinstance(given, Mapping):
        return all(_holds(stored.get(key), value) for key, value in given.items())
    if isinstance(stored, list) and isinstance(given, list):
        return len(stored) == len(given) and all(map(_holds, stored, given))
    return stored == given


def title_of(companion: Mapping[str, Any]) -> str:
    return f"{companion['kind']} {companion['metadata']['name']}"


def changed_too_late(companion: Mapping[str, Any]) -> FieldError:
    """Return why a change is refused that no trial would see."""
    cause = f"{title_of(companion)} changed, and no trial would see it: the experiment has ended"
    return FieldError("metadata.name", cause, "submit it under another name", "companion-changed")


def _values(companion: Mapping[str, Any]) -> dict[str, str]:
    """Return the data; that of a Secret as the server keeps it, with the plain texts encoded."""
    plain = (companion.get("stringData") or {}).items()
    encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in plain}
    return {**(companion.get("data") or {}), **(companion.get("binaryData") or {}), **encoded}
