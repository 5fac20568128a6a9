"""`katib db-manager`."""

from __future__ import annotations

import logging
import re

import click

from katib.cli import options
from katib.cli.signals import stop_on_signal

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


class _Duration(click.ParamType[float]):
    """Seconds, written as Katib's flags are: 60s, 1m30s; a bare number is seconds."""

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        text = f"{value}s" if value.isascii() and value.isdecimal() else value
        if not re.fullmatch(f"(?:{_PART.pattern})+", text):
            self.fail(f'"{value}" is no duration; write it like 60s or 1m30s', param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


@click.command(
    short_help="Serve the metrics that trials report from a database.",
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
    "--listen-address", default="0.0.0.0:6789", show_default=True, metavar="HOST:PORT", help="Where to serve."
)
@click.option(
    "--connect-timeout",
    "connect_seconds",
    type=_Duration(),
    default="60s",
    show_default=True,
    help="How long to wait for the database at the start.",
)
@options.verbose
def command(url: str | None, listen_address: str, connect_seconds: float, verbose: int) -> int:
    """Serve the observation log of a PostgreSQL, MySQL, MariaDB or SQLite database over gRPC until stopped.

    Takes the place of Katib's DB manager and goes on with its table. When the database goes away later, calls fail as
    unavailable and succeed again as soon as it is back.
    """
    from katib.cluster.db_manager import DbManager, read_options
    from katib.cluster.monitoring.log_records import log_json

    log_json((logging.INFO, logging.DEBUG)[min(verbose, 1)])
    # It tells of each broken connection with a traceback; what matters about them is logged by the manager.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    manager = DbManager(read_options(url=url, listen_address=listen_address, connect_seconds=connect_seconds))
    stop_on_signal(lambda _number: manager.stop())
    manager.run()
    return 0
