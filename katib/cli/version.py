"""`katib version`."""

from __future__ import annotations

import platform
import sys

import click

from katib import __version__


@click.command(short_help="Print the version.")
def command() -> None:
    """Print the versions of katib and of Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(f"katib {__version__} (Python {python}, {platform.system()} {platform.machine()})")
