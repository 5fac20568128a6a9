"""The token of a server on this machine, and how a client of the same account finds it.

The token is made at the first start and kept in the server's data directory, for its owner only. While a server runs,
it leaves a note there and in a directory of the account: its address, the file of its token, the link that lets a
browser in, and the key of further links. So a command finds the server of its account from any directory.

A client sends the token only to the server that wrote the note: a server holds a lock on its note, and without
one the note is not believed. Whatever listens at that address then may be another account's, in wait for the token.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import platform
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from katib.errors import TerminalError
from katib.model.files.directories import make_private

TOKEN_FILE = "token"  # noqa: S105 - the name of a file
SIGNED_OUT_FILE = "signed-out"
_TOKEN_BYTES = 32
_LONGEST_NOTE = 65_536
_LOCK_ATTEMPTS = 20
_LOCK_PAUSE_SECONDS = 0.01
_PROBE_SECONDS = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """A server that runs.

    Attributes:
        token: Its token; None: it asks for none, or was given one that stands in no file.
        page: Link to its page for people; empty: it has none.
        link_key: Makes further links; empty: there is the one.
    """

    url: str
    token: str | None
    page: str = ""
    directory: Path | None = None
    link_key: str = ""

    @property
    def opening_file(self) -> Path | None:
        """Path of a file that a browser may open instead of the link; it goes with the note."""
        return None if self.directory is None else self.directory / _opening_name(self.url)


def account_directory() -> Path | None:
    """Return the directory of the account for notes and tokens; None when the account has no place of its own."""
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "katib"
    with contextlib.suppress(RuntimeError):
        return Path.home() / ".local" / "state" / "katib"
    return None


def kept_token(directory: Path) -> str:
    """Return the token of a directory, made at the first call.

    Raises:
        TerminalError: It cannot be kept, or others may read it.
    """
    path = directory / TOKEN_FILE
    try:
        make_private(directory)
        if not path.exists():
            _make_token(path)
        with path.open() as file:
            is_private = not os.fstat(file.fileno()).st_mode & 0o077
            token = file.read().strip()
    except OSError as error:
        raise TerminalError(
            f"{path}: the server's token cannot be kept: {error.strerror}; give one with --token or KATIB_TOKEN"
        ) from error
    if not is_private or not token:
        cause = "empty" if not token else "open to other accounts"
        raise TerminalError(f"{path}: the server's token is {cause}; delete the file, and a new one is made")
    return token


@contextmanager
def noted(
    url: str, token_file: Path | None, *directories: Path | None, page: str = "", link_key: str = ""
) -> Iterator[None]:
    """Leave a note of a server in directories while it runs; one that cannot be written to is passed over.

    Args:
        token_file: File of its token; None: in no file.
        page: Link to its page for people; empty: it has none.
        link_key: Makes further links; empty: there is the one.
    """
    file = token_file and str(token_file.absolute())
    text = json.dumps({"url": url, "machine": platform.node(), "tokenFile": file, "page": page, "linkKey": link_key})
    with ExitStack() as stack:
        for directory in directories:
            if directory is not None:
                _leave_note(stack, directory / _file_name(url), text)
                stack.callback(_forget, directory / _opening_name(url))
        yield


def note_of(url: str, *directories: Path | None) -> Note | None:
    """Return the note of the server that a URL leads to; None when no server of this account is known there."""
    if urlsplit(url).scheme != "http":
        return None
    for directory in directories:
        if directory is not None and (note := _read_note(directory / _file_name(url))) is not None:
            host, noted_host = urlsplit(url).hostname, urlsplit(note.url).hostname
            if host in (noted_host, "localhost"):
                return note
    return None


def running_servers(*directories: Path | None) -> list[Note]:
    """Return the notes of all servers that run, those of the first directory first; each server once."""
    found: dict[str, Note] = {}
    for directory in directories:
        for path in sorted(directory.glob("server-*.json")) if directory is not None else ():
            if (note := _read_note(path)) is not None:
                found.setdefault(note.url, note)
    return list(found.values())


def _make_token(path: Path) -> None:
    """Write a new token, at once whole; a second writer finds that of the first."""
    descriptor, draft = tempfile.mkstemp(prefix=".token-", dir=path.parent)  # for its owner only
    try:
        with open(descriptor, "w") as file:  # noqa: PTH123 - of a descriptor
            file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        Path(draft).unlink()


def _file_name(url: str) -> str:
    return f"server-{urlsplit(url).port or 80}.json"


def _opening_name(url: str) -> str:
    return f"open-{urlsplit(url).port or 80}.html"


def _forget(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _leave_note(stack: ExitStack, path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        stack.callback(os.close, descriptor)
        _lock(descriptor)
        stack.callback(path.unlink, missing_ok=True)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError as error:
        _log.info("No note of the server is left", extra={"path": str(path), "cause": error.strerror})


def _lock(descriptor: int) -> None:
    """Take the lock of a note. A reader holds it for a moment."""
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt == _LOCK_ATTEMPTS - 1:
                raise
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return


def _read_note(path: Path) -> Note | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)) as file:  # noqa: PTH123 - as above
            if os.fstat(file.fileno()).st_uid != os.getuid() or not _is_locked(file.fileno()):
                return None
            content = json.loads(file.read(_LONGEST_NOTE))
        if content["machine"] != platform.node():
            return None  # a home of several machines
        token_file = content["tokenFile"]
        token = Path(token_file).read_text().strip() if token_file else None
        page, link_key = (str(content.get(name) or "") for name in ("page", "linkKey"))
        return Note(str(content["url"]), token, page, path.parent, link_key)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _is_locked(descriptor: int) -> bool:
    """Return whether a server holds the lock. One that is taken here for a moment goes with the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def works_elsewhere(url: str, directory: Path) -> bool:
    """Return whether a server of this account listens at a URL and works in another directory."""
    is_known = note_of(url, account_directory()) is not None
    return is_known and note_of(url, directory) is None and listens(url)


def listens(url: str) -> bool:
    """Return whether anything listens there; the HTTP client is not even imported when nothing does."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False
