"""`katib apply`."""

from __future__ import annotations

import click

from katib.cli import failures, options
from katib.cli.printing import full_name, print_object


@click.command(
    short_help="Submit experiments, or resume or update them.",
    epilog=options.examples(
        "katib apply experiment.yaml",
        "katib apply -f a.yaml -f b.yaml",
        "sed s/demo/demo-2/ experiment.yaml | katib apply -f -",
    ),
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-f", "--filename", "more_files", multiple=True, metavar="FILE", help="A file; `-` is standard input.")
@options.output("json", "yaml", "name")
@options.connection
def command(
    files: tuple[str, ...],
    more_files: tuple[str, ...],
    form: str | None,
    target: options.Target,
) -> int:
    """Submit experiments to a server.

    An experiment that exists and is unfinished goes on; one whose budget changed is updated.
    """
    from katib.cli.connection import connect
    from katib.errors import KatibError, code_of

    paths = (*files, *more_files)
    if not paths:
        raise click.UsageError("which file?", click.get_current_context())
    code = 0
    with connect(target, read_only=False) as (service, namespace):
        for path in paths:
            try:
                text, source = options.read_file(path)
                submission = service.submit(text, source=source, namespace=namespace)
            except KatibError as error:
                for line in failures.error_lines(error, path):
                    click.echo(f"error: {line}", err=True)
                code = code or code_of(error).exit_code
                continue
            for notice in submission.notices:
                click.echo(f"note: {notice}", err=True)
            if form:
                print_object(submission.experiment, form)
            else:
                click.echo(f"{full_name(submission.experiment)} {submission.outcome}")
    return code
