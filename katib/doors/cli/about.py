"""Output for a shell: `katib version`, `katib completion` and `katib kubeconfig`."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import click

from katib.doors.cli import options
from katib.model.version import __version__


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


@click.command(epilog=options.examples("katib kubeconfig", 'eval "$(katib kubeconfig)"'))
@options.data_dir
def kubeconfig(data_dir: Path | None) -> int:
    """Print the line that points kubectl and other Kubernetes clients to the server of a data directory.

    `katib serve` writes the file named there, with the server's token: anyone with it can run commands as you.
    """
    from katib.doors.kube_api.kubeconfig import line_to_copy

    click.echo(line_to_copy(data_dir or options.default_data_dir()))
    return 0
