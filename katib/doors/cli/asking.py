"""`katib ask` and `katib tell`: trials that a script evaluates."""

from __future__ import annotations

import json
import platform
import uuid
from typing import Any

import click

from katib.doors.cli import options
from katib.errors import invalid
from katib.model.names import EXPERIMENT_LABEL
from katib.model.types import Experiment, Trial
from katib.service.tuning.reading import assignments_of, typed_value

_REQUEST = click.option(
    "--request-id",
    metavar="TEXT",
    default="",
    help="Id of this request: repeating it returns the same answer.  [default: a new one]",
)


@click.command(
    epilog=options.examples(
        "katib ask my-experiment",
        "katib ask my-experiment --wait 10m --lease 1h",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.option("--wait", type=options.Duration(), default="60s", show_default=True, help="How long to wait for a trial.")
@click.option(
    "--lease",
    type=options.Duration(),
    default="1h",
    show_default=True,
    help="How long you have to end it; then other clients get the trial.",
)
@click.option("--client", metavar="TEXT", default="", help="Name of the client, for display.  [default: this machine]")
@_REQUEST
@options.connection
def ask(name: str, wait: float, lease: float, client: str, request_id: str, target: options.Target) -> int:
    """Get a trial to evaluate, of an experiment without trialTemplate, and print it as JSON.

    Evaluate it with the printed parameters and end it with `katib tell`. The exit code is 1 if there is no trial: the
    experiment has ended, or none is free within the time.
    """
    from katib.doors.cli.connection import connect, experiment_meant

    with connect(target, read_only=False) as (service, namespace):
        name = experiment_meant(service, namespace, name)
        types = {one.name: one.parameter_type for one in service.get(Experiment, namespace, name).spec.parameters}
        given = service.ask(
            namespace,
            name,
            request_id=request_id or uuid.uuid4().hex,
            client=client or platform.node(),
            lease_seconds=lease,
            wait_seconds=wait,
        )
    if given.trial is None:
        click.echo(f"experiment/{name}: no trial: {given.reason}", err=True)
        return 1
    texts = assignments_of(given.trial)
    parameters: dict[str, Any] = {key: typed_value(types.get(key, ""), text) for key, text in texts.items()}
    click.echo(json.dumps({"trial": given.trial.name, "parameters": parameters}, ensure_ascii=False))
    return 0


@click.command(
    epilog=options.examples(
        "katib tell my-experiment my-experiment-4fj2x1aa loss=0.1",
        "katib tell my-experiment my-experiment-4fj2x1aa --failed 'out of memory'",
    ),
)
@click.argument("name", type=options.EXPERIMENT_NAME)
@click.argument("trial", metavar="TRIAL", type=options.TRIAL_NAME)
@click.argument("values", nargs=-1, metavar="[METRIC=VALUE]...")
@click.option("--failed", metavar="REASON", help="It failed, for this reason.")
@click.option("--stopped", is_flag=True, help="It was stopped before its end.")
@_REQUEST
@options.connection
def tell(
    name: str,
    trial: str,
    values: tuple[str, ...],
    failed: str | None,
    stopped: bool,
    request_id: str,
    target: options.Target,
) -> None:
    """End a trial from `katib ask`, with its values, as failed or as stopped."""
    from katib.doors.cli.connection import connect, experiment_meant

    texts = options.pairs(values, "METRIC=VALUE", str.rpartition)  # no number has an equals sign
    if not texts and failed is None and not stopped:
        raise click.UsageError("give METRIC=VALUE, --failed or --stopped", click.get_current_context())
    with connect(target, read_only=False) as (service, namespace):
        found = service.get(Trial, namespace, trial)
        owner = found.metadata.labels.get(EXPERIMENT_LABEL, "")
        if owner != experiment_meant(service, namespace, name):
            cause, remedy = f"it belongs to {owner or 'no experiment'}", "name its own experiment"
            raise invalid(f"trial {trial}", cause, remedy, "tell-experiment")
        answer = service.tell(namespace, trial, texts, failure=failed, stopped=stopped, request_id=request_id)
    click.echo(f"trial/{trial}: {answer.stop or 'ended'}")
