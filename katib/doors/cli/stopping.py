"""`katib serve --stop`: stops the server of a data directory, which may run in the background."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

import click

from katib.doors.rest.notes import Note, running_servers
from katib.errors import KatibError, NotFoundError, UnavailableError
from katib.service.tuning.states import is_completed

_END_SECONDS = 90.0
"""Longer than the default grace period of 30 s for running trials."""


def stop_server(directory: Path, data: str, *, ends_trials: bool, quiet: bool) -> None:
    """Stop the server of a data directory, and return once it has ended.

    Args:
        data: The option that names it to later commands.
        ends_trials: Whether running trials end with it, as after Ctrl-C.
        quiet: Whether to print nothing.

    Raises:
        NotFoundError: No server works there.
        UnavailableError: It has not ended in time, or its process is not known.
    """
    from katib.places.machine import holder_of

    holder, note = holder_of(directory), next(iter(running_servers(directory)), None)
    if note is None:
        other = "" if holder is None else f"; process {holder.pid} ({holder.command}) does, end it there with Ctrl-C"
        raise NotFoundError(f"no server works on the data directory {directory}{other}")
    process = None if holder is None else holder.open_process()
    if holder is None or process is None:
        raise UnavailableError(f"the process of the server at {note.url} is not known; end it where it was started")
    running = 0 if ends_trials else _running_trials(note)
    try:
        with suppress(ProcessLookupError):  # it has just ended
            signal.pidfd_send_signal(process, signal.SIGINT if ends_trials else signal.SIGTERM)
        waiting = select.poll()
        waiting.register(process, select.POLLIN)
        if not waiting.poll(_END_SECONDS * 1000):
            raise UnavailableError(
                f"the server at {note.url} (process {holder.pid}) has not ended within {_END_SECONDS:g} s; "
                "it is still being stopped, look again later"
            )
    finally:
        os.close(process)
    if not quiet:
        click.echo(f"the server at {note.url} (process {holder.pid}) has ended{_left(running, data)}")


def _left(running: int, data: str) -> str:
    """Return the fate of running trials, as the end of a sentence."""
    if not running:
        return ""
    trials = "1 trial was running, and" if running == 1 else f"{running} trials were running, and"
    return f"; {trials} `katib serve{data}` resumes {'it' if running == 1 else 'them'}"


def _running_trials(note: Note) -> int:
    """Return the number of trials that a server runs; 0 if it no longer answers."""
    from katib.doors.rest.client import HttpTuningService

    with suppress(KatibError), HttpTuningService(note.url, note.token) as service:
        # An experiment's own count may be a second old.
        going = [e for e in service.experiments() if not is_completed(e)]
        return sum(len(service.trials(e.namespace, e.name, states=("Running",)).items) for e in going)
    return 0
