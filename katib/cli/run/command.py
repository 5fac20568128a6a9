"""`katib run`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from katib.api.loading import FileText, with_annotations
from katib.api.names import LEARNS_FROM_ANNOTATION, NOTHING
from katib.api.types import Experiment
from katib.cli import options
from katib.cli.app import INTERRUPTED
from katib.cli.run import again
from katib.cli.run.summary import (
    interrupted_line,
    left_at_server_line,
    left_line,
    options_of,
    run_again_line,
)
from katib.cli.signals import survive_hangup
from katib.errors import InvalidError
from katib.rest.door import open_door
from katib.rest.notes import running_servers
from katib.tuning.reading import is_completed
from katib.tuning.service import DEFAULT_NAMESPACE, NO_CHOICE, Choice, TuningService

if TYPE_CHECKING:
    from katib.local.engine import Engine

_HERE_ONLY = ("restart", "retry_failed", "more", "detach")
"""Options that have no meaning in a cluster."""

_OF_AN_ENGINE = ("config", "containers", "on")
"""Options that have no meaning where a server runs the experiment."""


learn_from_option = click.option(
    "--learn-from",
    "learn_from",
    multiple=True,
    metavar="EXPERIMENT",
    help="Learn from the trials of this experiment, as far as they agree with those to come; can be repeated. "
    "none: auto does not look for experiments by itself.",
)


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
@click.option(
    "--warm-start",
    "warm_start",
    metavar="FILE",
    help="Learn from the trials of a CSV or JSON file, with a column for each parameter and metric.",
)
@learn_from_option
@options.budget
@options.checkpoint
@again.choice_options
@options.detach
@options.data_dir
@options.namespace
@options.config
@options.containers
@options.place
@click.option("--server", metavar="URL", help="Have this server run it, and watch it from here.")
@options.token
@options.cluster
@options.log_to
@options.output("json", "yaml")
@options.quiet
@options.verbose
def run(
    file: str,
    warm_start: str | None,
    learn_from: tuple[str, ...],
    annotations: dict[str, str],
    choice: Choice,
    detach: bool,
    data_dir: Path | None,
    namespace: str | None,
    config: Path | None,
    containers: str | None,
    slurm: tuple[str, ...] | None,
    server: str | None,
    token: str | None,
    cluster: options.Cluster,
    form: str | None,
    quiet: bool,
    verbose: int,
) -> int:
    """Run an experiment on this machine, to its end.

    Shows a live table on a terminal and plain lines otherwise; with -o, standard output holds only the final object.
    Running the same file again goes on with what is unfinished. Once it has ended, --restart, --retry-failed and --more
    run it again; an experiment whose trials all failed runs again by itself when its program or its file changed.

    Where a server works on the data directory, or with --server, that server runs the experiment and this command
    watches it; Ctrl-C stops the watching only.

    With --context, the experiment runs in that Kubernetes cluster and is watched from here; Ctrl-C stops the watching
    only.

    The exit code is 0 when the experiment succeeded, 1 when it failed, 2 when the file is wrong, 3 when one that has
    ended changed since and none of these options is given, 130 after Ctrl-C.
    """
    from katib.tuning.asking import check_runs_by_itself

    options.set_up_logging(verbose, quiet=quiet, says_sentences=True)
    if cluster:
        options.refuse_beside("a cluster", "checkpoint", "data_dir", "server", "token", *_OF_AN_ENGINE, *_HERE_ONLY)
    document = with_annotations(with_earlier(FileText(*options.read_file(file)), warm_start, learn_from), annotations)
    if cluster:
        return _run_in_cluster(document, namespace, cluster, form=form, quiet=quiet)
    try:
        check_runs_by_itself(document)
    except InvalidError as error:
        return again.wrong(error, document.source)
    if server is not None:
        target = options.Target(server, token, data_dir, namespace, verbose, cluster)
        return run_at_server(server, target, document, choice, form=form, quiet=quiet)
    return run_here(
        document,
        data_dir,
        namespace,
        config,
        containers,
        slurm=slurm,
        choice=choice,
        detach=detach,
        form=form,
        quiet=quiet,
    )


def with_earlier(file: FileText, warm_start: str | None, learn_from: Sequence[str]) -> FileText:
    """Return an experiment file with the earlier trials of another file, and with experiments to learn from."""
    if warm_start is None and not learn_from:
        return file
    from katib.tuning.earlier_files import with_earlier_experiments, with_earlier_trials

    if warm_start is not None:
        file = with_earlier_trials(file, *options.read_file(warm_start))
    if NOTHING in learn_from:
        return with_annotations(file, {LEARNS_FROM_ANNOTATION: NOTHING})
    return with_earlier_experiments(file, learn_from) if learn_from else file


def run_here(
    file: FileText,
    data_dir: Path | None,
    namespace: str | None,
    config: Path | None,
    containers: str | None,
    *,
    slurm: tuple[str, ...] | None = None,
    choice: Choice = NO_CHOICE,
    detach: bool = False,
    form: str | None,
    quiet: bool,
    drafted: bool = False,
) -> int:
    """Run an experiment on this machine, to its end; return the exit code.

    Args:
        file: The experiment file.
        data_dir: As the option says it.
        namespace: Where the file names none.
        config: Further algorithms.
        containers: What runs the images of trials.
        slurm: Options of `sbatch` where trials are to run as jobs of Slurm; None: they run on this machine.
        choice: What to do with an experiment that is there already.
        detach: Whether a server in the background runs it.
        form: What to print at the end in place of lines.
        quiet: Whether to print the result only.
        drafted: Whether the trial template is not the user's own, so that nothing is said of it.
    """
    data = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir is not None else ""
    directory = data_dir or options.default_data_dir()
    if detach:
        from katib.cli.run.detached import run_detached

        options.refuse_beside("--detach, but for the command that watches", "log_to")
        options.refuse_beside("--detach", "on")
        return run_detached(file, directory, data, namespace, config, containers, choice=choice, quiet=quiet)
    if (note := next(iter(running_servers(directory)), None)) is not None:
        from katib.rest.client import HttpTuningService

        options.refuse_beside("the server that runs there", *_OF_AN_ENGINE)
        with HttpTuningService(note.url, note.token) as service:
            return _run_at(service, note.url, file, namespace, data, choice, form=form, quiet=quiet)
    from katib.cli.connection import works_elsewhere
    from katib.local import open_engine

    if not data and works_elsewhere(directory):
        data = f" --data-dir {shlex.quote(str(directory))}"
    engine = open_engine(data_dir=directory, config=config, containers=containers, slurm=slurm)
    try:
        return _run_in(engine, file, namespace, directory, data, choice, form=form, quiet=quiet, drafted=drafted)
    except InvalidError as error:
        return again.wrong(error, file.source)


def run_at_server(
    url: str, target: options.Target, file: FileText, choice: Choice, *, form: str | None, quiet: bool
) -> int:
    """Have a server that was named run an experiment, and watch it from here; return the exit code.

    Args:
        url: Of the server.
        target: That server.
        file: The experiment file.
        choice: What to do with an experiment that is there already.
        form: What to print at the end in place of lines.
        quiet: Whether to print the result only.
    """
    from katib.cli.connection import connect

    options.refuse_beside("a server", "detach", *_OF_AN_ENGINE)
    with connect(target, read_only=False) as opened:
        place = f" --server {url}"
        return _run_at(opened.service, url, file, target.namespace, place, choice, form=form, quiet=quiet)


def _run_in(
    engine: Engine,
    file: FileText,
    namespace: str | None,
    directory: Path,
    data: str,
    choice: Choice,
    *,
    form: str | None,
    quiet: bool,
    drafted: bool,
) -> int:
    """Run an experiment in this process; as `run_here`, with the data directory and the option that names it.

    Raises:
        InvalidError: The document is wrong, or what was chosen is impossible.
    """
    from katib.cli.run.following import Interrupt, Run

    interrupt = Interrupt()
    admitted = again.admitted_first(engine, file, namespace, directory)
    with engine:
        may_ask = not quiet and form is None and again.is_terminal()
        submitted = again.submit_to(engine, file, namespace, admitted, choice, may_ask=may_ask)
        submission = submitted.submission
        if submission is None:
            return submitted.code
        engine.start()
        name = submission.experiment.name
        survive_hangup(lambda: engine.note_hangup(submission.experiment.namespace, name))
        notices = [n for n in submission.notices if not (drafted and n.startswith("spec.trialTemplate"))]
        for notice in () if quiet else (*submitted.notes, *notices, *_company(engine.service, submission.experiment)):
            click.echo(f"note: {notice}", err=True)
        run = Run(engine.service, submission.experiment, interrupt, form=form, quiet=quiet)
        with open_door(engine.service, directory):
            run.follow()
        if interrupt.requested and not run.progress.finished:
            click.echo("stopping; press Ctrl-C again to stop at once", err=True)
            engine.stop(interrupted=True)
            line = interrupted_line(run.progress.experiment, options.typed_line(), run.progress.done, engine.in_slurm)
            click.echo(line, err=True)
            return INTERRUPTED
        code = run.report(options_of(run.progress.experiment, DEFAULT_NAMESPACE, data))
        if run.was_over and not quiet:
            click.echo(again.had_ended(run.progress.experiment), err=form is not None)
        engine.stop()
        return code


def _run_at(
    service: TuningService,
    url: str,
    file: FileText,
    namespace: str | None,
    place: str,
    choice: Choice,
    *,
    form: str | None,
    quiet: bool,
) -> int:
    """Have a server run an experiment, and watch it from here; return the exit code.

    Args:
        service: The server.
        url: Where it listens, as the user knows it.
        file: The experiment file.
        namespace: Where it names none.
        place: The options with which later commands find the server.
        choice: What to do with an experiment that is there already.
        form: What to print at the end in place of lines.
        quiet: Whether to print the result only.
    """
    from katib.cli.run.following import Interrupt, Run

    interrupt = Interrupt()
    may_ask = not quiet and form is None and again.is_terminal()
    try:
        command = options.typed_line()
        run_it = partial(service.run, file, source=file.source, namespace=namespace, command=command)
        submitted = again.submit(run_it, choice, may_ask=may_ask)
    except InvalidError as error:
        return again.wrong(error, file.source)
    submission = submitted.submission
    if submission is None:
        return submitted.code
    run = Run(service, submission.experiment, interrupt, form=form, quiet=quiet)
    runs = () if run.was_over else (f"the server at {url} runs it; Ctrl-C stops the watching only",)
    for notice in () if quiet else (*submitted.notes, *submission.notices, *runs):
        click.echo(f"note: {notice}", err=True)
    run.follow()
    experiment = run.progress.experiment
    where = options_of(experiment, DEFAULT_NAMESPACE, place)
    if interrupt.requested and not run.progress.finished:
        click.echo(left_at_server_line(experiment, url, run.progress.done, where), err=True)
        return INTERRUPTED
    code = run.report(where)
    if run.was_over and not quiet:
        click.echo(again.had_ended(run.progress.experiment), err=form is not None)
    return code


def _run_in_cluster(
    read: FileText,
    namespace: str | None,
    cluster: options.Cluster,
    *,
    form: str | None,
    quiet: bool,
) -> int:
    from katib.cli.connection import open_cluster
    from katib.cli.run.following import Interrupt, Run
    from katib.tuning.asking import check_runs_by_itself

    interrupt = Interrupt()
    with open_cluster(cluster) as opened:
        try:
            check_runs_by_itself(read)
            submission = opened.service.submit(read, source=read.source, namespace=namespace or opened.namespace)
        except InvalidError as error:
            return again.wrong(error, read.source)
        for notice in () if quiet else submission.notices:
            click.echo(f"note: {notice}", err=True)
        run = Run(opened.service, submission.experiment, interrupt, form=form, quiet=quiet)
        run.follow()
        place = options_of(run.progress.experiment, opened.namespace, str(cluster))
        if interrupt.requested and not run.progress.finished:
            click.echo(left_line(run.progress.experiment, read.source, run.progress.done, place), err=True)
            return INTERRUPTED
        code = run.report(place)
        if run.was_over and not quiet:
            click.echo(run_again_line(run.progress.experiment, read.source, place), err=form is not None)
        return code


def _company(service: TuningService, experiment: Experiment) -> list[str]:
    """Return a note when the data directory holds further unfinished experiments: they go on as well."""
    others = [e.name for e in service.experiments() if not is_completed(e) and e.name != experiment.name]
    if not others:
        return []
    return [f"unfinished experiments of this data directory go on beside it, while it runs: {', '.join(others)}"]
