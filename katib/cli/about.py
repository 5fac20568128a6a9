"""`katib version` and `katib completion`."""

from __future__ import annotations

import platform
import sys

import click

from katib.cli import options
from katib.version import __version__


@click.command()
def version() -> None:
    """Print the versions of katib and of Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(f"katib {__version__} (Python {python}, {platform.system()} {platform.machine()})")


@click.command(
    epilog=options.examples(
        'eval "$(katib completion bash)"',
        "katib completion fish > ~/.config/fish/completions/katib.fish",
    ),
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in your shell."""
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None, "click knows all three"
    click.echo(completion(ctx.find_root().command, {}, "katib", "_KATIB_COMPLETE").source())
