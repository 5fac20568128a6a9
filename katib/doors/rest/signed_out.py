"""Cookies and links that are no longer valid: cookies and links from before a browser signed out, and used links.

The cookies are kept in a file as digests until they would have ended anyway, so that a copy of one opens nothing after
a restart either. Links need no file: each start has a key of its own.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from pathlib import Path

from katib.model.files.whole_files import write_whole

_log = logging.getLogger(__name__)


class SignedOut:
    """Cookies of browsers that signed out. Thread-safe.

    Args:
        path: Their file; None: a restart forgets them.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._links_until = 0.0
        self._used: dict[str, float] = {}
        self._path = path
        self._lock = threading.Lock()
        self._ends = _read(path) if path is not None else {}

    def __contains__(self, value: str) -> bool:
        """Return whether the browser of this value of a cookie signed out."""
        return _digest(value) in self._ends

    def use(self, link: str, made: float, end: float, now: float) -> bool:
        """Use up a link; return whether it was new and made after the last browser signed out.

        Args:
            made: When it was made, in seconds since 1970.
            end: When it is too old anyway.
            now: Seconds since 1970.
        """
        with self._lock:
            self._used = {used: until for used, until in self._used.items() if until > now}
            if made <= self._links_until or link in self._used:
                return False
            self._used[link] = end
            return True

    def add(self, value: str, end: int, now: float) -> None:
        """End a session.

        A file that cannot be written to is logged: the session ends all the same, until the next start.

        Args:
            end: When the cookie would have ended, in seconds since 1970.
            now: Seconds since 1970.
        """
        with self._lock:
            self._links_until = max(self._links_until, now)
            self._ends = {digest: until for digest, until in self._ends.items() if until > now} | {_digest(value): end}
            if self._path is None:
                return
            try:
                ends = (f"{until} {digest}\n" for digest, until in self._ends.items())
                write_whole(self._path, "".join(ends), is_private=True)
            except OSError as error:
                _log.warning("Who signed out cannot be kept in %s: %s", self._path, error.strerror)


def _read(path: Path) -> dict[str, int]:
    """Return the end of each kept cookie by its digest; nothing if there is no file yet."""
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
        return {digest: int(end) for end, digest in pairs}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("Who signed out cannot be read from %s: %s", path, error)
        return {}


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
