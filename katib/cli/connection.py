"""Finding the service that a command asks: a server, or the data directory in this process."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import click

from katib.cli.options import DEFAULT_SERVER, default_data_dir
from katib.errors import FieldError, InvalidError, UnavailableError
from katib.tuning.service import TuningService

_PROBE_SECONDS = 1.0


@contextmanager
def connect(
    *, server: str | None, token: str | None, data_dir: Path | None, verbose: int, read_only: bool
) -> Iterator[TuningService]:
    """Open the service that the options name.

    A server that was named is asked and nothing else. Without one, a data directory that was named is opened; without
    either, the default server is asked, and when none runs, a command that only reads opens the default data directory.

    Raises:
        InvalidError: The URL is none.
        UnavailableError: There is nobody to ask.
    """
    if server is None and read_only:
        directory = data_dir or default_data_dir()
        if (data_dir is not None or not _listens(DEFAULT_SERVER)) and directory.is_dir():
            yield _open_offline(directory, verbose)
            return
        if data_dir is not None:
            raise UnavailableError(f"there is no data directory {data_dir}; check --data-dir")
    url = server or DEFAULT_SERVER
    _check_url(url)
    if not _listens(url):
        raise UnavailableError(_nobody(url, named=server is not None, read_only=read_only))
    from katib.rest.client import HttpTuningService

    with HttpTuningService(url, token) as service:
        yield service


def _open_offline(directory: Path, verbose: int) -> TuningService:
    if verbose:
        click.echo(f"no server is asked; reading {directory}", err=True)
    from katib.engine import open_offline

    return open_offline(directory)


def _listens(url: str) -> bool:
    """Tell whether anything listens there; the HTTP client is not even imported when nothing does."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        valid = False
    if not valid:
        raise InvalidError(
            [FieldError("--server", f'"{url}" is no URL', f"write it like {DEFAULT_SERVER}", "server-url")]
        )


def _nobody(url: str, *, named: bool, read_only: bool) -> str:
    if named:
        return f"no server answers at {url}; start it with `katib serve`, or check --server"
    if read_only:
        return (
            f"no server answers at {url} and there is no data directory {default_data_dir()}; "
            "start `katib serve`, or give --server or --data-dir"
        )
    return f"no server answers at {url}; start one with `katib serve`, or use `katib run FILE`"
