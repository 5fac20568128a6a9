"""Log records for the user of a run: a sentence in place of the record, once."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager

SENTENCE = "sentence"
"""Attribute of a record for the user of a run: the same in words."""

_FORGOTTEN_SECONDS = 600.0
"""After so long without it, a sentence is worth saying again."""


def sentence_of(record: logging.LogRecord) -> str:
    """Return the sentence of a record for users; empty if it is the whole record."""
    sentence: str = getattr(record, SENTENCE, "")
    cause = getattr(record, "cause", "")
    return sentence or (f"{record.getMessage()}: {cause}" if cause else "")


class OnceEach(logging.Filter):
    """Leaves out a sentence that was said before, as by each try of a write to a full disk."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        sentence = sentence_of(record)
        last = self._said.get(sentence, -math.inf)
        self._said[sentence] = record.created
        return not sentence or record.created - last > _FORGOTTEN_SECONDS


class _Sentences(logging.Formatter):
    """Writes the sentence that a record carries in place of it."""

    def format(self, record: logging.LogRecord) -> str:
        return sentence_of(record) or super().format(record)


@contextmanager
def said_once() -> Iterator[None]:
    """Have a program that sets up no logging of its own show sentences, each once."""
    handler, once = logging.lastResort, OnceEach()
    if handler is None:
        yield
        return
    before = handler.formatter
    handler.addFilter(once)
    handler.setFormatter(_Sentences())
    try:
        yield
    finally:
        handler.removeFilter(once)
        handler.setFormatter(before)
