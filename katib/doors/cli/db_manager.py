"""`katib db-manager`."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from katib.doors.cli import options
from katib.doors.cli.signals import stop_on_signal


@click.command(
    epilog=options.examples(
        "katib db-manager --url postgresql://katib:secret@localhost/katib",
        "DB_NAME=mysql DB_USER=katib DB_PASSWORD=secret KATIB_MYSQL_DB_HOST=localhost katib db-manager",
        "katib db-manager --url sqlite:////var/lib/katib/katib.db",
    ),
)
@click.option(
    "--url",
    envvar="KATIB_DB_URL",
    metavar="URL",
    help="The database.  [env: KATIB_DB_URL; default: DB_NAME, DB_USER, DB_PASSWORD and the other variables of Katib]",
)
@click.option(
    "--listen-address", default="0.0.0.0:6789", show_default=True, metavar="HOST:PORT", help="Address to listen on."
)
@click.option(
    "--connect-timeout",
    "connect_seconds",
    type=options.Duration(),
    help="How long to wait for the database at the start.  [default: forever]",
)
@click.option(
    "--key-file",
    envvar="KATIB_DB_MANAGER_KEY_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keys of the tokens that callers must send (`katib db-manager-key` writes it).  [default: ask for none]",
)
@click.option(
    "--tls-dir",
    envvar="KATIB_DB_MANAGER_TLS_DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Certificate to serve with (tls.crt, tls.key); read again when it changes.  [default: plain text]",
)
@click.option(
    "--plain-address",
    envvar="KATIB_DB_MANAGER_PLAIN_ADDRESS",
    metavar="HOST:PORT",
    default="",
    help="Additional address for plain text, such as 127.0.0.1:6790 for forwarded ports.  [default: none]",
)
@click.option(
    "--status-address",
    envvar="KATIB_DB_MANAGER_STATUS_ADDRESS",
    metavar="HOST:PORT",
    default="",
    help="Address for status reports of Kubeflow Trainer, such as 0.0.0.0:6791.  [default: none]",
)
@options.verbose
def db_manager(
    url: str | None,
    listen_address: str,
    connect_seconds: float | None,
    key_file: Path | None,
    tls_dir: Path | None,
    plain_address: str,
    status_address: str,
    verbose: int,
) -> int:
    """Serve the observation log of a PostgreSQL, MySQL, MariaDB or SQLite database over gRPC until stopped.

    Replaces Katib's DB manager and continues its table. If the database becomes unreachable later, calls fail as
    unavailable until it is back.
    """
    from katib.places.cluster import DbManager, log_json, read_options

    log_json((logging.INFO, logging.DEBUG)[min(verbose, 1)])
    # It logs each broken connection with a traceback; the manager logs the relevant part.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    manager = DbManager(
        read_options(
            url=url,
            listen_address=listen_address,
            connect_seconds=connect_seconds,
            key_file=key_file,
            tls_directory=tls_dir,
            plain_address=plain_address,
            status_address=status_address,
        )
    )
    stop_on_signal(lambda _number: manager.stop())
    manager.run()
    return 0
