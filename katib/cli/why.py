"""`katib why`."""

from __future__ import annotations

import dataclasses

import click

from katib.cli import options
from katib.cli.printing import print_data
from katib.tuning.service import Diagnosis


@click.command(
    short_help="Explain why something does not progress, or how it ended.",
    epilog=options.examples(
        "katib why my-experiment",
        "katib why my-experiment-k4x8bq2z",
    ),
)
@click.argument("name", type=options.ANY_NAME)
@options.output("json", "yaml")
@options.connection
def command(
    name: str,
    form: str | None,
    target: options.Target,
) -> None:
    """Explain, on one screen, why an experiment or a trial does not progress, or how it ended."""
    from katib.cli.connection import connect

    with connect(target, read_only=True) as (service, namespace):
        diagnosis = service.why(namespace, name)
    if form:
        fields = {key: list(value) if isinstance(value, tuple) else value for key, value in _fields(diagnosis)}
        print_data(fields, form)
        return
    for line in diagnosis_lines(diagnosis):
        click.echo(line)


def _fields(diagnosis: Diagnosis) -> list[tuple[str, object]]:
    """Return the fields under the names that they have over HTTP."""
    pairs = dataclasses.asdict(diagnosis)
    pairs["logTail"] = pairs.pop("log_tail")
    return list(pairs.items())


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Return a diagnosis as lines: the answer, what it rests on, what to do, and the end of the output."""
    lines = [diagnosis.verdict]
    if diagnosis.findings:
        lines += ["", *(f"  - {finding}" for finding in diagnosis.findings)]
    if diagnosis.remedies:
        lines += ["", "What you can do:", *(f"  - {remedy}" for remedy in diagnosis.remedies)]
    if diagnosis.log_tail:
        lines += ["", "The end of its output:", *(f"  | {line}" for line in diagnosis.log_tail)]
    return lines
