"""Completion indexes as text: `1,3-5`."""

from __future__ import annotations

from collections.abc import Iterable


def format_indexes(indexes: Iterable[int]) -> str:
    """Return indexes in order, runs of three or more as an interval, two neighbors as two numbers joined by a comma."""
    parts = []
    for first, last in _intervals(sorted(set(indexes))):
        if last == first:
            parts.append(str(first))
        else:
            parts.append(f"{first},{last}" if last == first + 1 else f"{first}-{last}")
    return ",".join(parts)


def parse_indexes(text: str) -> frozenset[int]:
    """Return the indexes that a text such as `0,2-4` names.

    Raises:
        ValueError: It is no such text.
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _intervals(ordered: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index in ordered:
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found
