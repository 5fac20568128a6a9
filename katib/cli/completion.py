"""`katib completion`."""

from __future__ import annotations

import click

from katib.cli import options


@click.command(
    short_help="Print a script that completes commands in your shell.",
    epilog=options.examples(
        'eval "$(katib completion bash)"',
        "katib completion fish > ~/.config/fish/completions/katib.fish",
    ),
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> None:
    """Print a script that completes commands and options in your shell."""
    from click.shell_completion import get_completion_class

    from katib.cli.app import cli

    completion = get_completion_class(shell)
    assert completion is not None, "click knows all three"
    click.echo(completion(cli, {}, "katib", "_KATIB_COMPLETE").source())
