"""`katib mcp`: the service as tools of an assistant, over the Model Context Protocol."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from katib.doors.cli import options
from katib.errors import invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.server import MCPServer

_HOST = "127.0.0.1"


@click.command(
    epilog=options.examples(
        "katib mcp",
        "katib mcp --write",
        "katib mcp --write --http 8770",
    ),
)
@click.option("--write", is_flag=True, help="Offer tools that start, evaluate and stop experiments, too.")
@click.option(
    "--http",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve HTTP on this port of this machine instead of standard input, with the token of the data directory.",
)
@options.connection
def mcp(write: bool, port: int | None, target: options.Target) -> None:
    """Offer experiments to an assistant, as a server of the Model Context Protocol on standard input and output.

    Its tools read: they list, describe, explain and compare experiments and trials, and draw figures. With --write
    they also start a search, run a command with its parameters, evaluate trials by ask and tell, and stop. An
    experiment runs commands, so this lets the assistant run any.

    With --write and without a server, experiments run in this process, and continue when it is started again.
    """
    from katib.doors.cli.connection import connect

    with (
        _explained(),
        connect(target, read_only=not write, starts=write, creates=write) as (service, namespace),
    ):
        from katib.doors.cli.mcp_tools import server_of

        server = server_of(service, namespace, writes=write)
        if port is None:
            server.run()
        else:
            _serve(server, port, target)


@contextmanager
def _explained() -> Iterator[None]:
    """Explain how to install a missing package."""
    try:
        import mcp.server  # noqa: F401 - whether it is there
    except ImportError as error:
        cause = "it needs the package mcp, from version 2 on, which is not installed"
        raise invalid("katib mcp", cause, "pip install 'katib[mcp]'", "extra-missing") from error
    yield


def _serve(server: MCPServer, port: int, target: options.Target) -> None:
    """Serve HTTP on this machine until stopped; every request carries the token."""
    import uvicorn

    from katib.doors.rest.guard import LOOPBACK_HOSTS, Guard
    from katib.doors.rest.notes import TOKEN_FILE, kept_token
    from katib.doors.rest.sessions import Sessions
    from katib.wire.serving.listening import listen
    from katib.wire.serving.prompt_server import PromptServer

    directory = target.data_dir or options.default_data_dir()
    token = target.token or kept_token(directory)
    with listen(_HOST, port) as listening:
        app = Guard(
            server.streamable_http_app(stateless_http=True, json_response=True),
            sessions=Sessions(token.encode()),
            allowed_hosts=LOOPBACK_HOSTS,
        )
        where = "KATIB_TOKEN" if target.token else directory / TOKEN_FILE
        click.echo(f"http://{_HOST}:{listening.getsockname()[1]}/mcp (bearer token: {where}); Ctrl-C stops it")
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
        PromptServer(config).run(sockets=[listening])
