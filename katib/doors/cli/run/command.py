"""`katib run`."""

from __future__ import annotations

import functools
import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from katib.doors.cli import run_options as options
from katib.doors.cli.app import INTERRUPTED
from katib.doors.cli.run import again
from katib.doors.cli.run.summary import (
    interrupted_line,
    left_at_server_line,
    left_line,
    options_of,
    run_again_line,
)
from katib.doors.cli.signals import survive_hangup
from katib.doors.rest.door import open_door
from katib.doors.rest.notes import running_servers, works_elsewhere
from katib.engine.controllers.kinds import key_of
from katib.errors import InvalidError
from katib.model.loading import FileText, with_annotations
from katib.model.names import LEARNS_FROM_ANNOTATION, NOTHING
from katib.model.templates.claims import with_claims
from katib.model.types import Experiment
from katib.service.tuning.service import DEFAULT_NAMESPACE, Choice, TuningService

if TYPE_CHECKING:
    from katib.doors.cli.run.following import Run
    from katib.places.machine import Engine

F = TypeVar("F", bound=Callable[..., Any])

_HERE_ONLY = ("restart", "retry_failed", "more", "detach")
"""Options without meaning in a cluster."""

_OF_AN_ENGINE = ("config", "containers", "on")
"""Options without meaning if a server runs the experiment."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Values of the options that `run` and `tune` share.

    Attributes:
        warm_start: A file with earlier trials.
        detach: Whether a server in the background runs it.
        claim: Directories of this machine by claim name.
        slurm: Options of Slurm; None runs trials on this machine.
        form: Output format of the final object on standard output.
        quiet: Whether to print the result only.
        verbose: Number of -v options.
    """

    warm_start: str | None
    learn_from: tuple[str, ...]
    annotations: dict[str, str]
    choice: Choice
    detach: bool
    data_dir: Path | None
    namespace: str | None
    claim: dict[str, str]
    slurm: tuple[str, ...] | None
    server: str | None
    token: str | None
    cluster: options.Cluster
    form: str | None
    quiet: bool
    verbose: int

    def prepare(self) -> options.Target:
        """Set up logging and refuse contradictory options; return the service to use."""
        options.set_up_logging(self.verbose, quiet=self.quiet, says_sentences=True)
        if self.cluster:
            options.refuse_beside(
                "a cluster", "checkpoint", "claim", "data_dir", "server", "token", *_OF_AN_ENGINE, *_HERE_ONLY
            )
        return options.Target(self.server, self.token, self.data_dir, self.namespace, self.verbose, self.cluster)

    def complete(self, file: FileText) -> FileText:
        """Return an experiment file with earlier trials, experiments to learn from, and annotations added."""
        if self.warm_start is not None or self.learn_from:
            from katib.service.tuning.earlier_files import with_earlier_experiments, with_earlier_trials

            if self.warm_start is not None:
                file = with_earlier_trials(file, *options.read_file(self.warm_start))
            if NOTHING in self.learn_from:
                file = with_annotations(file, {LEARNS_FROM_ANNOTATION: NOTHING})
            elif self.learn_from:
                file = with_earlier_experiments(file, self.learn_from)
        return with_annotations(file, self.annotations)


_SHARED = (
    click.option(
        "--warm-start",
        "warm_start",
        metavar="FILE",
        help="Learn from the trials of a CSV or JSON file, with a column for each parameter and metric.",
    ),
    click.option(
        "--learn-from",
        "learn_from",
        multiple=True,
        metavar="EXPERIMENT",
        help="Learn from the trials of this experiment, as far as they agree with those to come; can be repeated. "
        "none: auto does not look for experiments by itself.",
    ),
    *(options.features, options.checkpoint, again.choice_options, options.detach, options.data_dir, options.namespace),
    *(options.claims, options.place),
    click.option("--server", metavar="URL", help="Run it on this server, and watch it from here."),
    *(options.token, options.cluster, options.log_to, options.output("json", "yaml"), options.quiet, options.verbose),
)


def run_options(function: F) -> F:
    """Add the options that `run` and `tune` share; the command gets them as `shared`."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> Any:
        shared = RunOptions(**{one.name: kwargs.pop(one.name) for one in fields(RunOptions)})
        return function(*args, shared=shared, **kwargs)

    return options.with_options(_SHARED, command)  # type: ignore[return-value]  # click calls it by its parameters


@click.command(
    epilog=options.examples(
        "katib run experiment.yaml",
        "katib run experiment.yaml -q -o json | jq .status.currentOptimalTrial",
        "katib run experiment.yaml --server http://127.0.0.1:8765",
        "katib run experiment.yaml --context production",
        "katib run experiment.yaml --on slurm --slurm-option partition=gpu --slurm-option time=01:00:00",
    ),
)
@click.argument("file")
@options.config
@options.containers
@run_options
def run(file: str, config: Path | None, containers: str | None, shared: RunOptions) -> int:
    """Run an experiment on this machine, to its end.

    Shows a live table on a terminal and plain lines otherwise; with -o, standard output holds only the final object.
    Running the same file again continues unfinished work. Once it has ended, --restart, --retry-failed and --more run
    it again; an experiment whose trials all failed runs again by itself if its program or its file changed.

    If a server works in the data directory, or with --server, that server runs the experiment and this command watches
    it; Ctrl-C stops the watching only.

    With --context, the experiment runs in that Kubernetes cluster and is watched from here; Ctrl-C stops the watching
    only.

    If a file has several experiments, each runs after the one before it has ended.

    The exit code is 0 if the experiment succeeded, 1 if it failed, 2 if the file is invalid, 3 if an ended experiment
    changed since and none of these options is given, 130 after Ctrl-C.
    """
    target, whole, code = shared.prepare(), FileText(*options.read_file(file)), 0
    try:
        found = with_claims(whole, shared.claim).experiments()
    except InvalidError as error:
        return again.wrong(error, whole.source)
    for one in found:
        wanted = again.Wanted(
            shared.complete(one), shared.namespace, shared.choice, form=shared.form, quiet=shared.quiet
        )
        here = again.Here(shared.data_dir, config, containers, shared.slurm, detach=shared.detach)
        ended = run_anywhere(wanted, target, here)
        code = code or ended
        if ended in (INTERRUPTED, options.BAD_INPUT):
            return ended
    return code


def run_anywhere(wanted: again.Wanted, target: options.Target, here: again.Here) -> int:
    """Run an experiment in a cluster, at a server, or on this machine; return the exit code."""
    from katib.service.tuning.submission import check_runs_by_itself

    try:
        check_runs_by_itself(wanted.file)
    except InvalidError as error:
        return again.wrong(error, wanted.file.source)
    return run_wanted(wanted, target, here)


def run_wanted(wanted: again.Wanted, target: options.Target, here: again.Here) -> int:
    """Run what is wanted in a cluster, at a server, or on this machine; return the exit code."""
    if target.cluster:
        return _run_in_cluster(wanted, target.cluster)
    return run_here(wanted, here) if target.server is None else _run_at_server(target.server, target, wanted)


class _ServerStartedError(Exception):
    """A server now works in the awaited data directory."""


def run_here(wanted: again.Wanted, here: again.Here) -> int:
    """Run an experiment on this machine, to its end; return the exit code."""
    directory, data = here.directory, here.option
    if here.detach:
        from katib.doors.cli.run.detached import run_detached

        options.refuse_beside("--detach, but for the command that watches", "log_to")
        options.refuse_beside("--detach", "on")
        return run_detached(wanted, here)
    if (note := next(iter(running_servers(directory)), None)) is not None:
        from katib.doors.rest.client import HttpTuningService

        options.refuse_beside("the server that runs there", *_OF_AN_ENGINE)
        with HttpTuningService(note.url, note.token) as service:
            return run_at(service, note.url, wanted, data)
    from katib.places.machine import open_engine

    if not data and works_elsewhere(options.DEFAULT_SERVER, directory):
        data = f" --data-dir {shlex.quote(str(directory))}"
    engine = open_engine(
        data_dir=directory, config=here.config, containers=here.containers, slurm=here.slurm, slurm_wins=True
    )
    try:
        return _run_in(engine, wanted, directory, data)
    except InvalidError as error:
        return again.wrong(error, wanted.file.source)
    except _ServerStartedError:
        return run_here(wanted, here)


def _run_at_server(url: str, target: options.Target, wanted: again.Wanted) -> int:
    """Run an experiment on the named server, and watch it from here; return the exit code."""
    from katib.doors.cli.connection import connect

    options.refuse_beside("a server", "detach", *_OF_AN_ENGINE)
    with connect(target, read_only=False) as opened:
        return run_at(opened.service, url, wanted, f" --server {url}")


def _run_in(engine: Engine, wanted: again.Wanted, directory: Path, data: str) -> int:
    """Run an experiment in this process; like `run_here`, with the data directory and the option that names it."""
    from katib.doors.cli.run.following import Interrupt, Run
    from katib.places.machine import in_turn

    interrupt = Interrupt()

    def pause(seconds: float) -> None:
        time.sleep(seconds)
        if interrupt.requested:
            raise KeyboardInterrupt
        if running_servers(directory):
            raise _ServerStartedError

    def say(waiting: str) -> None:
        ways = "--data-dir with another one runs it at once, and `katib serve` runs many at once"
        wanted.note(f"{waiting}, which works in {directory}; {ways}")

    admitted = wanted.admitted_first(engine, directory)
    with ExitStack() as opened:
        in_turn(partial(opened.enter_context, engine), say, pause)
        submitted = wanted.submit_here(engine, admitted)
        submission = submitted.submission
        if submission is None:
            return submitted.code
        engine.on_cut_off = interrupt.request
        experiment = submission.experiment
        engine.start_for(key_of(experiment))
        survive_hangup(lambda: engine.note_hangup(experiment.namespace, experiment.name))
        wanted.note(*submitted.notes, *submission.notices)
        run = Run(engine.service, experiment, interrupt, form=wanted.form, quiet=wanted.quiet)

        def left(experiment: Experiment, _place: str) -> str:
            click.echo("stopping; press Ctrl-C again to stop at once", err=True)
            engine.stop(interrupted=True)  # raises if the data directory was moved or removed
            line = options.typed_line()
            return interrupted_line(experiment, line, run.progress.done, engine.in_slurm, is_cut_off=engine.is_cut_off)

        with open_door(engine.service, directory):
            run.follow()
        code = _end(run, wanted, data, left)
        engine.stop()
        return code


def run_at(service: TuningService, url: str, wanted: again.Wanted, place: str) -> int:
    """Run an experiment on a server, and watch it from here; return the exit code."""
    from katib.doors.cli.run.following import Interrupt, Run

    interrupt, file = Interrupt(), wanted.file
    try:
        submitted = wanted.submit_at(service)
    except InvalidError as error:
        return again.wrong(error, file.source)
    submission = submitted.submission
    if submission is None:
        return submitted.code
    run = Run(service, submission.experiment, interrupt, form=wanted.form, quiet=wanted.quiet)
    runs = () if run.was_over else (f"the server at {url} runs it; Ctrl-C stops the watching only",)
    wanted.note(*submitted.notes, *submission.notices, *runs)
    run.follow()
    return _end(run, wanted, place, lambda e, where: left_at_server_line(e, url, run.progress.done, where))


def _run_in_cluster(wanted: again.Wanted, cluster: options.Cluster) -> int:
    """Run an experiment in a cluster, and watch it from here; return the exit code."""
    from katib.doors.cli.connection import open_cluster
    from katib.doors.cli.run.following import Interrupt, Run

    interrupt, file = Interrupt(), wanted.file
    with open_cluster(cluster) as opened:
        try:
            submitted = wanted.submit_in_cluster(opened.service, opened.namespace)
        except InvalidError as error:
            return again.wrong(error, file.source)
        submission = submitted.submission
        if submission is None:
            return submitted.code
        wanted.note(*submitted.notes, *submission.notices)
        run = Run(opened.service, submission.experiment, interrupt, form=wanted.form, quiet=wanted.quiet)
        run.follow()
        return _end(
            run,
            wanted,
            str(cluster),
            lambda e, where: left_line(e, run.progress.done, where),
            lambda e, where: run_again_line(e, "" if wanted.drafted else file.source, where),
            opened.namespace,
        )


def _end(
    run: Run,
    wanted: again.Wanted,
    place: str,
    left: Callable[[Experiment, str], str],
    had_ended: Callable[[Experiment, str], str] = lambda experiment, _place: again.had_ended(experiment),
    default_namespace: str = DEFAULT_NAMESPACE,
) -> int:
    """Print the ending of a followed run; return the exit code."""
    experiment = run.progress.experiment
    where = options_of(experiment, default_namespace, place)
    if run.is_interrupted:
        click.echo(left(experiment, where), err=True)
        return INTERRUPTED
    code = wanted.report(run, where)
    if run.was_over and wanted.tells_ways and not wanted.quiet:
        click.echo(had_ended(experiment, where), err=wanted.form is not None)
    return code
