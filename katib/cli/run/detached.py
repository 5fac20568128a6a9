"""Handing an experiment to a server in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import click

from katib.api.loading import FileText
from katib.cli import options
from katib.cli.run import again
from katib.errors import InvalidError, UnavailableError
from katib.rest.notes import Note, running_servers
from katib.tuning.reading import is_completed
from katib.tuning.service import Choice

_START_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_LOG_FILE = "server.log"


def run_detached(
    file: FileText,
    directory: Path,
    data: str,
    namespace: str | None,
    config: Path | None,
    containers: str | None,
    *,
    choice: Choice,
    quiet: bool,
) -> int:
    """Submit an experiment to the server of a data directory, which is started where none runs; return the exit code.

    Args:
        file: The experiment file.
        directory: The data directory.
        data: The option that names it to later commands.
        namespace: Where the file names none.
        config: Further algorithms, for a server that is started.
        containers: What runs the images of trials there.
        choice: What to do with an experiment that is there already.
        quiet: Whether to print nothing.
    """
    note = next(iter(running_servers(directory)), None)
    try:
        if note is not None:
            submitted = _submit_to(note, file, namespace, choice)
        else:
            submitted = _store(file, directory, namespace, config, containers, choice)
    except InvalidError as error:
        return again.wrong(error, file.source)
    if submitted.submission is None:
        return submitted.code
    for line in () if quiet else submitted.notes:
        click.echo(f"note: {line}", err=True)
    experiment = submitted.submission.experiment
    if is_completed(experiment):
        click.echo(again.had_ended(experiment), err=True)
        return 0
    end = ""
    if note is None:
        note = _started(directory, config, containers)
        end = f"; `katib serve --stop{data}` ends that server, which was started now"
    if not quiet:
        click.echo(
            f"{experiment.name} runs in the background, by the server at {note.url}; "
            f"`katib watch {experiment.name}{data}` shows it, `katib stop {experiment.name}{data}` stops it{end}"
        )
    return 0


def _submit_to(note: Note, file: FileText, namespace: str | None, choice: Choice) -> again.Submitted:
    from katib.rest.client import HttpTuningService

    with HttpTuningService(note.url, note.token) as service:
        run = partial(service.run, file, source=file.source, namespace=namespace, command=options.typed_line())
        return again.submit(run, choice)


def _store(
    file: FileText,
    directory: Path,
    namespace: str | None,
    config: Path | None,
    containers: str | None,
    choice: Choice,
) -> again.Submitted:
    """Store an experiment for the server that is about to start."""
    from katib.local import open_engine

    engine = open_engine(data_dir=directory, config=config, containers=containers)
    admitted = again.admitted_first(engine, file, namespace, directory)
    with engine:
        return again.submit_to(engine, file, namespace, admitted, choice)


def _started(directory: Path, config: Path | None, containers: str | None) -> Note:
    """Start a server on a data directory, at the usual port or a free one, and return its note.

    Raises:
        UnavailableError: It ended, or does not answer in time.
    """
    from katib.cli.connection import listens

    port = 0 if listens(options.DEFAULT_SERVER) else options.DEFAULT_PORT
    command = [sys.executable, "-m", "katib.cli", "serve", "--data-dir", str(directory.absolute()), "--port", str(port)]
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
