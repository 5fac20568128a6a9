"""`katib db-manager-key` and `katib release-finalizers`: administration of an installation on Kubernetes."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import click

from katib.doors.cli import options
from katib.doors.cli.signals import stop_on_signal


@click.command(
    epilog=options.examples("katib db-manager-key --to /run/katib/keys"),
)
@click.option(
    "--to",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="File to write, for `katib db-manager --key-file`.",
)
@click.option(
    "--secret", metavar="NAME", default="katib-db-manager-key", show_default=True, help="Secret with the key."
)
def db_manager_key(target: Path, secret: str) -> int:
    """Write the key of this installation to a file, generating a random one if there is none yet.

    It runs in a pod of the cluster, before the DB manager, and uses the pod's service account. It waits until the API
    server answers.
    """
    from katib.engine.runtime.objects import Key
    from katib.places.cluster import PodSecrets, await_answer, core_namespace, ensure_keys, log_json, write_keys

    log_json(logging.INFO)
    secrets, key = PodSecrets.of_pod(), Key(core_namespace(), secret)
    stop = threading.Event()
    stop_on_signal(lambda _number: stop.set())
    keys = await_answer(lambda: ensure_keys(secrets, key), stop.wait)
    if keys is None:
        return 1
    write_keys(target, keys)
    return 0


@click.command(
    epilog=options.examples(
        "kubectl delete experiments --all --all-namespaces --wait=false",
        "katib release-finalizers --context kind-katib",
    ),
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.  [default: the current one]")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Kubeconfig of the cluster.  [default: $KUBECONFIG, else ~/.kube/config]",
)
@click.option("--force", is_flag=True, help="Also while a controller is running.")
def release_finalizers(context: str | None, kubeconfig: Path | None, *, force: bool) -> int:
    """Release the deleted experiments and trials of a Kubernetes cluster whose controller was removed.

    Until its controller has cleaned up, a deleted experiment or trial is held by a finalizer. If the controller was
    removed first, they are stuck in deletion, and so are the definitions of their kinds. This removes the finalizers of
    Katib from everything that is being deleted, in all namespaces. Jobs and pods are deleted with their trials; metrics
    stay in the database.
    """
    from katib.places.cluster import open_cluster_store, release, require_no_controller

    released = 0
    with open_cluster_store(kubeconfig, context) as store:
        if not force:
            require_no_controller(store)
        for what in release(store):
            click.echo(f"{what} released")
            released += 1
    if not released:
        click.echo("nothing that is being deleted is held by a finalizer of Katib")
    return 0
