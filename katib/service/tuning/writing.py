"""Writes to objects that the controllers write, too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from katib.errors import ConflictError

T = TypeVar("T")

ATTEMPTS = 20
"""The controllers write the status of a busy experiment ten times a second, and a change takes milliseconds."""


def until_written(attempt: Callable[[], T], experiment: str, again: str) -> T:
    """Return the result of the first attempt without a conflict.

    Args:
        attempt: Reads, decides and writes; called again after a conflict.
        experiment: Name of the experiment, for the error.
        again: Remedy, such as `submit it again`.

    Raises:
        ConflictError: Others wrote in between each time.
    """
    for _ in range(ATTEMPTS):
        with suppress(ConflictError):
            return attempt()
    raise ConflictError(f'experiment "{experiment}" keeps changing; {again} in a moment')
