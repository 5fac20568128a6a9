"""`katib watch`: follow a running experiment in the display of `katib run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from katib.doors.cli import options
from katib.doors.cli.app import INTERRUPTED
from katib.doors.rest.notes import running_servers
from katib.errors import UnavailableError
from katib.model.names import COMMAND_ANNOTATION
from katib.model.types import Experiment
from katib.service.tuning.service import Change, TuningService
from katib.service.tuning.states import is_completed
from katib.service.tuning.titles import namespace_in_use
from katib.service.tuning.trial_pages import each_trial

_POLL_SECONDS = 0.5


@click.command(epilog=options.examples("katib watch my-experiment", "katib watch my-experiment --context production"))
@options.newest_or_named
@options.log_to
@options.output("json", "yaml")
@options.quiet
@options.connection
def watch(name: str | None, form: str | None, quiet: bool, target: options.Target) -> int:
    """Show an experiment live, to its end, from any terminal; Ctrl-C ends the watching only.

    It runs on a server, in a cluster, or by a `katib run` whose terminal may be gone.

    The default is the newest experiment. The exit code is that of `katib run`.
    """
    from katib.doors.cli.connection import experiment_meant
    from katib.doors.cli.run.following import Interrupt, Run
    from katib.doors.cli.run.summary import options_of

    options.set_up_logging(target.verbose, quiet=quiet)
    interrupt = Interrupt()
    with _opened(target) as (service, namespace, place):
        name = experiment_meant(service, namespace, name)
        run = Run(service, service.get(Experiment, namespace, name), interrupt, form=form, quiet=quiet)
        run.follow()
        where = options_of(run.progress.experiment, namespace if target.cluster else options.DEFAULT_NAMESPACE, place)
        if interrupt.requested and not run.progress.finished:
            click.echo(f"{name} continues; `katib watch {name}{where}` shows it again", err=True)
            return INTERRUPTED
        return run.report(where)


@contextmanager
def _opened(target: options.Target) -> Iterator[tuple[TuningService, str, str]]:
    """Yield a service that reports changes, a namespace, and the options that name the place again."""
    from katib.doors.cli.connection import connect

    directory = target.data_dir or options.default_data_dir()
    place = target.place
    if not target.cluster and target.server is None:
        note = next(iter(running_servers(directory)), None)
        if note is not None:
            from katib.doors.rest.client import HttpTuningService

            with HttpTuningService(note.url, note.token) as service:
                yield service, target.namespace or namespace_in_use(service), place
            return
    with connect(target, read_only=True) as (service, namespace):
        polled = not target.cluster and target.server is None and directory.is_dir()
        yield (_Polled(service, _at_work(directory)) if polled else service), namespace, place  # type: ignore[misc]


def _at_work(directory: Path) -> Callable[[], bool]:
    from katib.places.machine import RECORD_FILE, Layout, is_engine_at_work

    record = Layout(directory.absolute()).run / RECORD_FILE
    return lambda: is_engine_at_work(record)


class _Polled:
    """A service that polls a data directory in which another process works.

    Args:
        is_at_work: Returns whether an engine works in it.
    """

    def __init__(self, service: TuningService, is_at_work: Callable[[], bool]) -> None:
        self._service = service
        self._is_at_work = is_at_work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def changes(self, namespace: str, experiment: str) -> Iterator[Change]:
        """Yield every object that changed since the last poll; raises UnavailableError if no engine works in it."""
        seen: dict[str, str] = {}
        while True:
            works = self._is_at_work()
            found = self._service.get(Experiment, namespace, experiment)
            for obj in (*each_trial(self._service, namespace, experiment), found):
                version = obj.metadata.resource_version
                if seen.get(obj.name) != version:
                    seen[obj.name] = version
                    yield Change("MODIFIED", obj.encode())
            if not works and not is_completed(found):
                command = found.metadata.annotations.get(COMMAND_ANNOTATION, "")
                way = f"`{command}` resumes it" if command else "`katib serve` resumes it"
                raise UnavailableError(f"{found.name} is unfinished, and nothing works on it now; {way}")
            time.sleep(_POLL_SECONDS)
