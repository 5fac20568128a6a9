"""`katib serve`."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from katib.cli import options
from katib.cli.app import INTERRUPTED
from katib.cli.signals import stop_on_signal


@click.command(
    short_help="Run experiments here as a server.",
    epilog=options.examples(
        "katib serve",
        "KATIB_TOKEN=$(openssl rand -hex 16) katib serve --host 0.0.0.0",
        "katib serve --cluster --context production",
    ),
)
@click.option("--host", default=options.DEFAULT_HOST, show_default=True, help="Address to listen on.")
@click.option("--port", default=options.DEFAULT_PORT, show_default=True, type=click.IntRange(0, 65535), help="Port.")
@options.token
@options.data_dir
@options.config
@click.option("--cluster", "on_cluster", is_flag=True, help="Answer for a Kubernetes cluster and run nothing here.")
@options.cluster
@options.quiet
@options.verbose
def command(
    host: str,
    port: int,
    token: str | None,
    data_dir: Path | None,
    config: Path | None,
    on_cluster: bool,
    cluster: options.Cluster,
    quiet: bool,
    verbose: int,
) -> int:
    """Run experiments on this machine until stopped, and answer over HTTP.

    Whoever reaches the server can run commands here. It therefore listens on this machine only, and beyond it only with
    a token that every request must carry. Unfinished experiments of the data directory go on.

    With --cluster, the experiments are those of a Kubernetes cluster, where they run; every request is made with the
    rights of the context, or in a pod with those of its service account.
    """
    if cluster and not on_cluster:
        raise click.UsageError("--context and --kubeconfig need --cluster", click.get_current_context())
    options.set_up_logging(verbose, quiet=quiet)
    if on_cluster:
        options.refuse_beside("--cluster", "data_dir", "config")
        return _serve_cluster(host, port, token, cluster, quiet=quiet)
    return _serve_here(host, port, token, data_dir, config, quiet=quiet)


def _serve_cluster(host: str, port: int, token: str | None, cluster: options.Cluster, *, quiet: bool) -> int:
    from katib.cli.connection import open_cluster
    from katib.rest.server import Server

    stop = _Stop()
    with (
        open_cluster(cluster) as opened,
        Server(opened.service, host=host, port=port, token=token) as server,
    ):
        if not quiet:
            click.echo(
                f"katib listens on {server.url} (cluster {opened.host}, API at {server.url}/docs); Ctrl-C stops it"
            )
        stop.wait()
        if not quiet:
            click.echo("stopping: the experiments of the cluster go on", err=True)
    return stop.exit_code


def _serve_here(
    host: str, port: int, token: str | None, data_dir: Path | None, config: Path | None, *, quiet: bool
) -> int:
    from katib.engine import open_engine
    from katib.rest.server import Server

    stop = _Stop()
    directory = data_dir or options.default_data_dir()
    with (
        open_engine(data_dir=directory, config=config) as engine,
        Server(engine.service, host=host, port=port, token=token) as server,
    ):
        engine.start()
        if not quiet:
            click.echo(
                f"katib listens on {server.url} (data in {directory}, API at {server.url}/docs); Ctrl-C stops it"
            )
        stop.wait()
        if not quiet:
            click.echo("stopping: running trials end and start again next time", err=True)
        server.close()
        engine.stop()
    return stop.exit_code


class _Stop:
    """Waits for the first SIGINT or SIGTERM; a second one ends the process at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.exit_code = 0
        stop_on_signal(self._stop, _exit_code)

    def wait(self) -> None:
        """Return when somebody asked to stop."""
        self._event.wait()

    def _stop(self, number: int) -> None:
        self.exit_code = _exit_code(number)
        self._event.set()


def _exit_code(number: int) -> int:
    return INTERRUPTED if number == signal.SIGINT else 0
