"""`katib validate`, `katib apply` and `katib delete`: files in, experiments out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from katib.doors.cli import failures, options
from katib.doors.cli.kinds import names_of
from katib.doors.cli.printing import full_name, print_object
from katib.errors import InvalidError, KatibError, code_of
from katib.model.loading import EXPERIMENTS, FileText, holds_runtimes
from katib.model.names import CONFIRMS_LABEL
from katib.model.templates.claims import with_claims
from katib.model.wording import counted
from katib.service.tuning.service import StoredRuntime, SubmittedExperiment, TuningService
from katib.service.tuning.titles import name_meant

_PROGRESS_SECONDS = 3.0


@click.command(
    epilog=options.examples(
        "katib validate experiment.yaml",
        "katib validate examples/*.yaml",
        "katib validate experiment.yaml --context production",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", callback=options.files_of)
@options.config
@options.containers
@options.claims
@options.namespace
@options.cluster
@options.quiet
def validate(
    files: tuple[str, ...],
    config: Path | None,
    containers: str | None,
    claim: dict[str, str],
    namespace: str | None,
    cluster: options.Cluster,
    quiet: bool,
) -> int:
    """Check experiment files as `katib run` would, and print all errors, one line each.

    No server and no data directory is needed. With --context, a file is checked against that cluster. The
    exit code is 2 if any file has an error.
    """
    code = 0
    with _checker(config, containers, namespace, cluster) as check:
        for path in files:
            try:
                found = with_claims(FileText(*options.read_file(path)), claim).experiments()
            except InvalidError as error:
                code = _report(error, path)
                continue
            for file in found:
                title = path if len(found) == 1 else f"{path} ({file.documents[-1].name})"
                try:
                    notices = check(file)
                except InvalidError as error:
                    code = _report(error, title)
                    continue
                for notice in notices:
                    click.echo(f"{title}: note: {notice}", err=True)
                if not quiet:
                    click.echo(f"{title}: ok")
    return code


def _report(error: InvalidError, title: str) -> int:
    """Print the errors of a file; return the exit code."""
    for line in failures.error_lines(error, title):
        click.echo(line, err=True)
    return options.BAD_INPUT


@contextmanager
def _checker(
    config: Path | None, containers: str | None, namespace: str | None, cluster: options.Cluster
) -> Iterator[Callable[[FileText], Sequence[str]]]:
    """Yield a function that checks a file and returns its notices."""
    if cluster:
        from katib.doors.cli.connection import open_cluster

        options.refuse_beside("a cluster", "claim", "config", "containers")
        with open_cluster(cluster) as opened:
            space = namespace or opened.namespace
            yield lambda file: opened.service.validate(file, source=file.source, namespace=space)
        return
    from katib.places.machine import validate_document

    yield lambda file: validate_document(
        file, source=file.source, namespace=namespace, config=config, containers=containers
    )


_files = click.option(
    "-f",
    "--filename",
    "more_files",
    multiple=True,
    metavar="FILE",
    callback=options.files_of,
    help="A file, or a directory of files; `-` is standard input.",
)


def _no_dry_run(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value not in (None, "none"):
        raise click.UsageError("there is no --dry-run; `katib validate FILE` checks a file and stores nothing", context)


@click.command(
    epilog=options.examples(
        "katib apply experiment.yaml",
        "katib apply -f a.yaml -f folder/",
        "katib apply -f runtimes.yaml",
        "sed s/demo/demo-2/ experiment.yaml | katib apply -f -",
    ),
)
@click.argument("files", nargs=-1, metavar="[FILE]...", callback=options.files_of)
@_files
@click.option("--dry-run", is_flag=False, flag_value="client", hidden=True, expose_value=False, callback=_no_dry_run)
@options.claims
@options.output("json", "yaml", "name")
@options.connection
def apply(
    files: tuple[str, ...],
    more_files: tuple[str, ...],
    claim: dict[str, str],
    form: str | None,
    target: options.Target,
) -> int:
    """Submit experiments to a server, or store training runtimes there.

    An existing experiment is configured if its budget changed, resumed if it was stopped, and unchanged otherwise. If
    no server runs, files that hold only training runtimes are stored in the data directory.
    """
    from katib.doors.cli.connection import connect

    paths = (*files, *more_files)
    if target.cluster:
        options.refuse_beside("a cluster", "claim")
    if not paths:
        raise click.UsageError("which file?", click.get_current_context())
    read, code = [], 0
    for path in paths:
        try:
            whole = with_claims(FileText(*options.read_file(path)), claim)
            read += [(path, file, holds_runtimes(file)) for file in whole.experiments()]
        except KatibError as error:
            code = _refuse(path, error, code)
    if not read:
        return code
    nothing_to_run = all(runtimes for *_, runtimes in read)
    with connect(target, read_only=False, nothing_to_run=nothing_to_run, creates=True) as (service, namespace):
        for path, file, runtimes in read:
            try:
                if runtimes:
                    _show_runtimes(service.store_runtimes(file, source=file.source, namespace=namespace), form)
                else:
                    _show_submission(service.submit(file, source=file.source, namespace=namespace), form)
            except KatibError as error:
                code = _refuse(path, error, code)
    return code


_WORDS = {"updated": "configured"}
"""kubectl's words for results, if they differ."""


def _refuse(path: str, error: KatibError, code: int) -> int:
    """Print the error of a file; return the exit code, that of an earlier file if there was one."""
    for line in failures.error_lines(error, path):
        click.echo(f"error: {line}", err=True)
    return code or code_of(error).exit_code


def _show_submission(submission: SubmittedExperiment, form: str | None) -> None:
    for notice in submission.notices:
        click.echo(f"note: {notice}", err=True)
    if form:
        print_object(submission.experiment.encode(), form)
    else:
        click.echo(f"experiment/{submission.experiment.name} {_WORDS.get(submission.outcome, submission.outcome)}")


def _show_runtimes(runtimes: Sequence[StoredRuntime], form: str | None) -> None:
    for stored in runtimes:
        if form:
            print_object(stored.runtime, form)
        else:
            click.echo(f"{full_name(stored.runtime)} {_WORDS.get(stored.outcome, stored.outcome)}")


@click.command(
    epilog=options.examples(
        "katib delete my-experiment",
        "katib delete -f experiment.yaml",
        "katib get -o name | xargs katib delete",
    ),
)
@click.argument("words", nargs=-1, metavar="[NAME]...")
@_files
@options.connection
def delete(
    words: tuple[str, ...],
    more_files: tuple[str, ...],
    target: options.Target,
) -> int:
    """Delete experiments with their trials, running processes, metrics and logs.

    With -f, those of files. If no server runs, they are deleted from the data directory.
    """
    from katib.doors.cli.connection import connect

    if not words and not more_files:
        raise click.UsageError("which experiment?", click.get_current_context())
    wanted: list[tuple[str | None, str]] = [(None, name) for name in (names_of(words, "Experiment") if words else ())]
    for path in more_files:
        documents = FileText(*options.read_file(path)).documents
        wanted += [(one.namespace or None, one.name) for one in documents if one.kind in EXPERIMENTS]
    options.set_up_logging(target.verbose, quiet=not target.verbose)  # an interrupted trial starts before it is deleted
    code = 0
    with connect(target, read_only=False, starts=target.has_data) as (service, namespace):
        for space, given in wanted:
            try:
                name = name_meant(service, space or namespace, given)
                found = service.experiments(space or namespace)
                confirming = [one.name for one in found if one.metadata.labels.get(CONFIRMS_LABEL) == name]
                _delete(service, space or namespace, name)
            except KatibError as error:
                code = failures.show(error)
            else:
                click.echo(f"experiment/{name} deleted")
                for other in confirming:
                    click.echo(f"experiment/{other} deleted, which confirmed it")
    return code


def _delete(service: TuningService, namespace: str, name: str) -> None:
    """Delete an experiment; while that takes long, print the number of its remaining trials."""
    errors: list[Exception] = []

    def delete() -> None:
        try:
            service.delete(namespace, name)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    deleting = threading.Thread(target=delete, name="delete", daemon=True)
    deleting.start()
    while True:
        deleting.join(_PROGRESS_SECONDS)
        if not deleting.is_alive():
            break
        with suppress(KatibError):  # it is deleted, and its remains are being removed
            left = service.trials(namespace, name, limit=1).total
            click.echo(f"experiment/{name}: Terminating, {counted(left, 'trial')} left", err=True)
    for error in errors:
        raise error
