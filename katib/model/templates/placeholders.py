"""Placeholders in a template, and references of trial parameters.

`${trialParameters.x}` is Katib's form; `${trialParams.x}` and `$<trialParams.x>` mean the same. Any other variable
syntax (`${HOME}`, `$(VAR)`, `{{x}}`, and `${trialSpec.Name}` outside a reference) is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_PLACEHOLDER = re.compile(r"\$\{trialParam(?:eter)?s\.(.+?)\}|\$<trialParam(?:eter)?s\.(.+?)>")
_METADATA_REFERENCE = re.compile(r"\$\{trialSpec\.(.+?)\}")
_INDEXED_KEY = re.compile(r"(.+)\[(.+)]")

PLAIN_KEYS = ("Name", "Namespace", "Kind", "APIVersion", "Seed")
INDEXED_KEYS = ("Labels", "Annotations")


@dataclass(frozen=True, slots=True)
class MetadataReference:
    """A reference to the trial or to its template, such as `${trialSpec.Labels[team]}`."""

    key: str
    index: str = ""

    @property
    def is_legal(self) -> bool:
        """Whether the key exists, and has an index if it needs one."""
        return self.key in PLAIN_KEYS or (self.key in INDEXED_KEYS and bool(self.index))


def parse_reference(reference: str) -> MetadataReference | None:
    """Return the parsed metadata reference, None for the name of a search-space parameter."""
    found = _METADATA_REFERENCE.search(reference)
    if found is None:
        return None
    indexed = _INDEXED_KEY.fullmatch(found[1])
    return MetadataReference(indexed[1], indexed[2]) if indexed else MetadataReference(found[1])


def split_text(text: str) -> tuple[str, ...]:
    """Return literal text and placeholder names in turn, literal first and last: `("--lr=", "lr", "")`."""
    parts: list[str] = []
    end = 0
    for found in _PLACEHOLDER.finditer(text):
        parts += (text[end : found.start()], found[1] or found[2])
        end = found.end()
    return (*parts, text[end:])


def join_text(parts: tuple[str, ...], values: Mapping[str, str]) -> str:
    """Insert the values, all at once: a value that looks like a placeholder is only text."""
    words = list(parts)
    words[1::2] = map(values.__getitem__, parts[1::2])
    return "".join(words)


def has_placeholder(value: object) -> bool:
    return isinstance(value, str) and _PLACEHOLDER.search(value) is not None


def find_placeholders(value: Any) -> tuple[str, ...]:
    """Return the names of all placeholders in a text, or in the keys and texts of an object, each once, in order."""
    return tuple(dict.fromkeys(name for text in _texts(value) for name in split_text(text)[1::2]))


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(text for entry in reversed(list(item.items())) for text in reversed(entry))
        elif isinstance(item, list | tuple):
            pending.extend(reversed(item))
