"""Detached runs: hands an experiment to a server in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import click

from katib.doors.cli import options
from katib.doors.cli.run import again
from katib.doors.rest.notes import Note, running_servers
from katib.errors import InvalidError, UnavailableError
from katib.service.tuning.repeating import company_of
from katib.service.tuning.states import is_completed

_START_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_LOG_FILE = "server.log"


def run_detached(wanted: again.Wanted, here: again.Here) -> int:
    """Submit an experiment to the server of a data directory, starting one if needed; return the exit code."""
    note = next(iter(running_servers(here.directory)), None)
    try:
        submitted = _store(wanted, here) if note is None else _submit_to(note, wanted)
    except InvalidError as error:
        return again.wrong(error, wanted.file.source)
    if submitted.submission is None:
        return submitted.code
    wanted.note(*submitted.notes)
    experiment = submitted.submission.experiment
    if is_completed(experiment):
        over = f"{experiment.name} had ended before, so nothing was run now"
        click.echo(again.had_ended(experiment) if wanted.tells_ways else over, err=True)
        return 0
    from katib.doors.rest.client import HttpTuningService

    end, data = "", here.option
    if note is None:
        note = _started(here)
        end = f"; `katib serve --stop{data}` ends that server, which was started now"
        with HttpTuningService(note.url, note.token) as service:
            wanted.note(*company_of(service, experiment, data))
    if not wanted.quiet:
        click.echo(
            f"{experiment.name} runs in the background, by the server at {note.url}; "
            f"`katib watch {experiment.name}{data}` shows it, `katib stop {experiment.name}{data}` stops it{end}"
        )
    return 0


def _submit_to(note: Note, wanted: again.Wanted) -> again.Submitted:
    from katib.doors.rest.client import HttpTuningService

    with HttpTuningService(note.url, note.token) as service:
        return wanted.submit_at(service)


def _store(wanted: again.Wanted, here: again.Here) -> again.Submitted:
    """Store an experiment for a server that is about to start."""
    from katib.places.machine import open_engine

    engine = open_engine(data_dir=here.directory, config=here.config, containers=here.containers)
    admitted = wanted.admitted_first(engine, here.directory)
    with engine:
        return wanted.submit_here(engine, admitted)


def _started(here: again.Here) -> Note:
    """Start a server on a data directory, at the usual port or a free one, and return its note."""
    from katib.doors.rest.notes import listens

    directory, config, containers = here.directory, here.config, here.containers
    port = 0 if listens(options.DEFAULT_SERVER) else options.DEFAULT_PORT
    command = [sys.executable, "-m", "katib", "serve", "--data-dir", str(directory.absolute()), "--port", str(port)]
    command += ["--config", str(config.absolute())] if config is not None else []
    command += ["--containers", containers] if containers is not None else []
    log = directory / _LOG_FILE
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor, start_new_session=True
        )
    finally:
        os.close(descriptor)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if (note := next(iter(running_servers(directory)), None)) is not None:
            return note
        if process.poll() is not None:
            break
        time.sleep(_LOOK_SECONDS)
    raise UnavailableError(f"the server in the background did not start; {log} says why")
