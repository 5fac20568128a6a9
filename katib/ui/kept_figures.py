"""Figures that take long to draw: drawn once for all pages, and not for every change of the trials."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

_MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class KeptFigure:
    """A figure that was drawn.

    Attributes:
        json: As scripts get it.
        version: Of the trials that it shows.
        drawn_at: On the monotonic clock.
    """

    json: str
    version: int
    drawn_at: float


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    figure: KeptFigure | None = None


class KeptFigures:
    """What was drawn last of each figure. Thread-safe.

    Args:
        now: Reads a monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._entries: dict[Hashable, _Entry] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, version: int, keep_seconds: float, draw: Callable[[], str]) -> KeptFigure:
        """Return a figure, redrawn when the trials have changed and the last one is old.

        Callers that ask while it is drawn wait for that drawing. What `draw` raises is passed on and not kept.

        Args:
            key: Of the user, the experiment, the figure and what was chosen of it.
            version: Of the trials as they are.
            keep_seconds: So long a figure is good although trials have changed.
            draw: Draws it.
        """
        with self._lock:
            entry = self._entries.pop(key, None) or _Entry()
            self._entries[key] = entry  # at the end: those in front have not been asked for longest
            while len(self._entries) > _MOST_KEPT:
                self._entries.pop(next(iter(self._entries)))
        with entry.lock:
            kept = entry.figure
            if kept is None or (kept.version != version and self._now() - kept.drawn_at >= keep_seconds):
                kept = entry.figure = KeptFigure(draw(), version, self._now())
            return kept
