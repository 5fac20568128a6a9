"""`katib controller`."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from katib.doors.cli import options
from katib.doors.cli.signals import stop_on_signal


@click.command(
    epilog=options.examples(
        "katib controller --katib-config /etc/katib/katib-config.yaml",
        "katib controller --context kind-katib",
    ),
)
@click.option(
    "--katib-config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="KatibConfig, whose part `init` configures the controller.  [default: Katib's defaults]",
)
@click.option("--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Kubeconfig of the cluster.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option(
    "--cert-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Certificate of the webhooks (tls.crt, tls.key), renewed by another program.  [default: generated]",
)
@click.option(
    "--webhook-name", "webhook_names", multiple=True, metavar="NAME", help="Additional name or address of the webhooks."
)
@click.option(
    "--db-manager-address",
    envvar="KATIB_DB_MANAGER_ADDRESS",
    metavar="HOST:PORT",
    help="Address of the DB manager for this process.  [default: that for pods]",
)
@click.option(
    "--db-manager-ca",
    type=click.Path(dir_okay=False, path_type=Path),
    help="CA certificates (PEM) of the DB manager.  [default: plain text]",
)
@click.option(
    "--shutdown-delay",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="How long webhooks are answered after a stop was requested.  [default: 0]",
)
@options.verbose
def controller(
    katib_config: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    cert_dir: Path | None,
    webhook_names: tuple[str, ...],
    db_manager_address: str | None,
    db_manager_ca: Path | None,
    shutdown_delay: float,
    verbose: int,
) -> int:
    """Run the controllers and webhooks of a Kubernetes cluster until stopped.

    Several replicas may run; with leader election one of them works and the others wait. Environment variables are
    Katib's: KATIB_CORE_NAMESPACE, KATIB_DB_MANAGER_SERVICE_IP, _NAMESPACE and _PORT. KATIB_DB_MANAGER_STATUS_PORT
    is the port at which the DB manager accepts the status of Kubeflow Trainer.
    """
    from katib.model.configuration import read_configuration
    from katib.places.cluster import (
        ClusterController,
        ControllerOptions,
        KatibConfig,
        core_namespace,
        log_json,
        open_connection,
        status_address,
    )
    from katib.places.cluster import db_manager_address as address_for_pods

    log_json((logging.INFO, logging.DEBUG)[min(verbose, 1)])
    config = (
        KatibConfig()
        if katib_config is None
        else read_configuration(KatibConfig, katib_config.read_text(), str(katib_config))
    )
    connection = open_connection(kubeconfig, context)
    controller = ClusterController(
        connection,
        ControllerOptions(
            config=config,
            core_namespace=core_namespace(),
            db_manager_address=address_for_pods(),
            own_db_manager_address=db_manager_address or "",
            status_address=status_address(),
            db_manager_authority=db_manager_ca,
            certificates=cert_dir,
            webhook_names=webhook_names,
            shutdown_delay_seconds=shutdown_delay,
        ),
    )
    stop_on_signal(lambda _number: controller.stop())
    try:
        return controller.run()
    finally:
        connection.close()
