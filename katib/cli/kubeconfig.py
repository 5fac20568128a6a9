"""`katib kubeconfig`: how clients of Kubernetes find a server of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from katib.cli import options


@click.command(epilog=options.examples("katib kubeconfig", 'eval "$(katib kubeconfig)"'))
@options.data_dir
def kubeconfig(data_dir: Path | None) -> int:
    """Print the line by which kubectl and other clients of Kubernetes find the server of a data directory.

    `katib serve` writes the file that it names, with the server's token: anyone who has it can run commands as you.
    """
    from katib.kube_api.kubeconfig import line_to_copy

    click.echo(line_to_copy(data_dir or options.default_data_dir()))
    return 0
