"""`katib serve`."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from katib.doors.cli import options
from katib.doors.cli.app import INTERRUPTED
from katib.doors.cli.signals import stop_on_signal
from katib.doors.rest.notes import SIGNED_OUT_FILE, TOKEN_FILE, account_directory, kept_token, noted
from katib.errors import KatibError, invalid

if TYPE_CHECKING:
    from fastapi import APIRouter

    from katib.doors.rest.server import Server
    from katib.engine.controllers.metrics import Page
    from katib.places.machine import Engine
    from katib.service.tuning.service import TuningService
    from katib.service.tuning.users import Gateway, UserHeaders


_GATEWAY = (
    click.option(
        "--gateway",
        is_flag=True,
        help="With --cluster: trust the header in which a gateway names the user, with the rights of that user in the "
        "cluster. Only the gateway may reach the server.",
    ),
    click.option(
        "--user-header",
        envvar="USERID_HEADER",
        metavar="NAME",
        default="kubeflow-userid",
        help="The header that names the user.  [env: USERID_HEADER; default: kubeflow-userid]",
    ),
    click.option(
        "--user-prefix",
        envvar="USERID_PREFIX",
        metavar="TEXT",
        default="",
        help="Prefix of the name in that header.  [env: USERID_PREFIX]",
    ),
    click.option(
        "--groups-header",
        metavar="NAME",
        default="",
        help="The header with the user's groups, such as kubeflow-groups.  [default: none]",
    ),
)


_OF_A_START = (
    *("host", "port", "token", "no_token", "config", "containers", "on", "context", "kubeconfig", "db_manager"),
    *("gateway", "user_header", "user_prefix", "groups_header"),
)
"""Options without meaning for a running server."""


@click.command(
    epilog=options.examples(
        "katib serve",
        "katib serve --stop",
        "KATIB_TOKEN=$(openssl rand -hex 16) katib serve --host 0.0.0.0",
        "katib serve --cluster --context production",
        "katib serve --cluster --gateway",
    ),
)
@click.option("--host", default=options.DEFAULT_HOST, show_default=True, help="Address to listen on.")
@click.option("--port", default=options.DEFAULT_PORT, show_default=True, type=click.IntRange(0, 65535), help="Port.")
@options.token
@click.option("--no-token", is_flag=True, help="Require no token: every account of this machine may run commands here.")
@options.data_dir
@options.config
@options.containers
@options.place
@click.option(
    "--orphans",
    type=options.Duration(),
    default="10m",
    show_default=True,
    metavar="DURATION",
    help="How long programs of trials continue without a server, after SIGTERM or kill -9, until the next one takes "
    "them over; with 0 they end with the server.",
)
@click.option(
    "--stop",
    "stops",
    is_flag=True,
    help="Stop the server of the data directory, which may run in the background. With --orphans 0 its trials end too.",
)
@click.option("--cluster", "on_cluster", is_flag=True, help="Serve a Kubernetes cluster and run nothing here.")
@options.cluster
@partial(options.with_options, _GATEWAY)
@options.quiet
@options.verbose
def serve(
    host: str,
    port: int,
    token: str | None,
    no_token: bool,
    data_dir: Path | None,
    config: Path | None,
    containers: str | None,
    slurm: tuple[str, ...] | None,
    orphans: float,
    stops: bool,
    on_cluster: bool,
    cluster: options.Cluster,
    gateway: bool,
    user_header: str,
    user_prefix: str,
    groups_header: str,
    quiet: bool,
    verbose: int,
) -> int:
    """Run experiments on this machine until stopped, and answer over HTTP.

    Anyone with access to the server can run commands here. Every request therefore needs a token. The first start
    generates one and keeps it in the data directory, readable only by you; katib finds it there by itself. Beyond this
    machine the server listens only with a token of your choice. Unfinished experiments of the data directory continue.

    Ctrl-C ends all trials. After SIGTERM or kill -9 their programs continue for the time of --orphans; the next server
    or `katib run` on the data directory takes them over. --stop has the effect of SIGTERM, from anywhere.

    With --cluster, the experiments are those of a Kubernetes cluster, and run there; every request is made with the
    rights of the context, or in a pod with those of its service account. With --gateway as well, the cluster authorizes
    the user of every request; beyond this machine the gateway has to send the token.
    """
    if stops:
        return _stop_server(data_dir, orphans, quiet=quiet)
    if cluster and not on_cluster:
        raise click.UsageError("--context and --kubeconfig need --cluster", click.get_current_context())
    _check_gateway(gateway=gateway, on_cluster=on_cluster)
    if no_token and token:
        raise click.UsageError("--no-token contradicts --token and KATIB_TOKEN", click.get_current_context())
    options.set_up_logging(verbose, quiet=quiet)
    if on_cluster:
        options.refuse_beside("--cluster", "data_dir", "config", "containers", "on", "orphans")
        from katib.service.tuning.users import UserHeaders

        headers = UserHeaders(user_header, user_prefix, groups_header) if gateway else None
        no_token = no_token or gateway or not (cluster or "KUBERNETES_SERVICE_HOST" not in os.environ)
        access = _access(host, token, account_directory(), no_token=no_token)
        return _serve_cluster(host, port, access, cluster, headers, quiet=quiet)
    directory = data_dir or options.default_data_dir()
    access = _access(host, token, directory, no_token=no_token)
    return _run(
        host,
        port,
        access,
        data_dir=directory,
        config=config,
        containers=containers,
        orphan_seconds=orphans,
        slurm=slurm,
        announce=_ignore if quiet else _announce,
    )


def _stop_server(data_dir: Path | None, orphans: float, *, quiet: bool) -> int:
    from katib.doors.cli.stopping import stop_server

    context = click.get_current_context()
    options.refuse_beside("--stop", *_OF_A_START)
    if context.params["on_cluster"]:
        raise click.UsageError("--stop stops the server of a data directory; leave --cluster out", context)
    is_given = context.get_parameter_source("orphans") is ParameterSource.COMMANDLINE
    if is_given and orphans:
        raise click.UsageError("the server was started with its --orphans; beside --stop only --orphans 0", context)
    data = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir is not None else ""
    stop_server(data_dir or options.default_data_dir(), data, ends_trials=is_given, quiet=quiet)
    return 0


def serve_page(directory: Path, tell: Callable[[str], None]) -> int:
    """Run experiments of a data directory on a free port until stopped; return the exit code.

    Args:
        tell: Called with the link to the page once it answers.
    """
    access = _access(options.DEFAULT_HOST, None, directory, no_token=False)
    return _run(
        options.DEFAULT_HOST, 0, access, data_dir=directory, announce=lambda server, _access, _about: tell(server.page)
    )


def _ignore(_server: Server, _access: _Access, _about: str) -> None:
    """Print nothing."""


def _check_gateway(*, gateway: bool, on_cluster: bool) -> None:
    """Refuse options without effect: a header is trusted only with --gateway."""
    context = click.get_current_context()
    if gateway and not on_cluster:
        raise click.UsageError("--gateway needs --cluster: one machine has one user", context)
    for name in ("user_header", "user_prefix", "groups_header"):
        if not gateway and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} needs --gateway", context)


@dataclass(frozen=True, slots=True)
class _Access:
    """Authentication of requests: a given token, the one kept in a directory, or none."""

    given: str | None = None
    directory: Path | None = None

    def token(self) -> str | None:
        """Return the token. One that is kept in a directory is created now."""
        return self.given if self.directory is None else kept_token(self.directory)

    @property
    def file(self) -> Path | None:
        return None if self.directory is None else self.directory / TOKEN_FILE


def _access(host: str, token: str | None, directory: Path | None, *, no_token: bool) -> _Access:
    """Return the authentication. Beyond this machine the server itself needs a token chosen by its operator."""
    from katib.doors.rest.server import is_loopback

    kept = not token and not no_token and is_loopback(host)
    if kept and directory is None:
        raise invalid("--token", "this account has no directory to keep one in", "give one", "token")
    return _Access(token, directory if kept else None)


@contextmanager
def _listening(
    service: TuningService | Gateway,
    host: str,
    port: int,
    access: _Access,
    *,
    pages: Mapping[str, Page] = MappingProxyType({}),
    data_dir: Path | None = None,
    doors: Sequence[APIRouter] = (),
) -> Iterator[Server]:
    """Yield a server that commands of this account find; its note is removed before it stops."""
    from katib.doors.optuna_storage.server import line_to_copy
    from katib.doors.rest.server import Server
    from katib.doors.ui import ui_routes

    kept_in = access.directory or data_dir
    with (
        Server(
            service,
            host=host,
            port=port,
            token=access.token(),
            pages=pages,
            ui=partial(ui_routes, optuna_line=partial(line_to_copy, data_dir)) if data_dir else ui_routes,
            signed_out=kept_in and kept_in / SIGNED_OUT_FILE,
            doors=doors,
        ) as server,
        noted(
            server.address,
            access.file,
            data_dir,
            account_directory(),
            page=server.page,
            link_key=server.link_key,
        ),
    ):
        yield server


def _announce(server: Server, access: _Access, about: str) -> None:
    """Print the server's address and how other clients than katib sign in; the token is shown to its operator."""
    click.echo(f"katib listens on {server.url} ({about}, API at {server.url}/docs); Ctrl-C stops it")
    if server.page:
        is_shown = server.is_open or sys.stdout.isatty()  # other accounts may read redirected output
        click.echo(f"in a browser: {server.page} (or: katib ui)" if is_shown else "in a browser: run `katib ui`")
    if access.file is not None:
        click.echo(f'elsewhere:    curl -u "katib:$(cat {access.file})" {server.url}/api/v1/experiments')
    if server.is_open:
        click.echo("no token:     every account of this machine may read everything here and run commands as you")


def _serve_cluster(
    host: str, port: int, access: _Access, cluster: options.Cluster, headers: UserHeaders | None, *, quiet: bool
) -> int:
    from katib.doors.cli.connection import await_api_server

    stop = _Stop()
    if not await_api_server(cluster, stop.pause):
        return stop.exit_code
    with (
        _answering(cluster, headers) as (service, api_server),
        _listening(service, host, port, access) as server,
    ):
        if not quiet:
            users = f", for the users that {headers.user} names" if headers else ""
            _announce(server, access, f"cluster {api_server}{users}")
        stop.wait()
        if not quiet:
            click.echo("stopping: the experiments of the cluster continue", err=True)
    return stop.exit_code


@contextmanager
def _answering(cluster: options.Cluster, headers: UserHeaders | None) -> Iterator[tuple[TuningService | Gateway, str]]:
    """Yield the service for a cluster, and the address of its API server."""
    from katib.doors.cli.connection import open_cluster, open_users

    if headers is None:
        with open_cluster(cluster) as opened:
            yield opened.service, opened.host
        return
    from katib.service.tuning.users import Gateway

    logging.getLogger("katib.audit").setLevel(logging.INFO)  # writes are audited whatever the log level
    with open_users(cluster) as users:
        yield Gateway(headers, users.service_of), users.host


def _run(
    host: str,
    port: int,
    access: _Access,
    *,
    data_dir: Path,
    config: Path | None = None,
    containers: str | None = None,
    orphan_seconds: float = 0.0,
    slurm: tuple[str, ...] | None = None,
    announce: Callable[[Server, _Access, str], None],
) -> int:
    """Run experiments here until stopped; the keywords but the last are those of `katib.places.machine.open_engine`."""
    from katib.doors.optuna_storage.routes import storage_routes
    from katib.engine.controllers.metrics import ControllerMetrics, check_page
    from katib.model.wording import format_duration
    from katib.places.machine import open_engine

    stop, metrics = _Stop(), ControllerMetrics()
    with (
        suppress(_StoppedEarly),
        open_engine(
            data_dir=data_dir,
            config=config,
            metrics=metrics,
            containers=containers,
            orphan_seconds=orphan_seconds,
            slurm=slurm,
        ) as engine,
    ):
        pages = {"/readyz": check_page(engine.readiness), "/metrics": metrics.page}
        doors = [storage_routes(engine.chosen_trials)]
        with _listening(engine.service, host, port, access, pages=pages, data_dir=data_dir, doors=doors) as server:
            engine.on_cut_off = stop.request
            with stop.raising():
                engine.start()
            announce(server, access, f"data in {data_dir}")
            if announce is not _ignore and (left := engine.interrupted()):
                first = "it" if len(left) == 1 else "the first"
                click.echo(f"interrupted:  {', '.join(left)}; `katib resume {left[0]}` resumes {first}")
            with (
                _answering_optuna(engine, data_dir, quiet=announce is _ignore),
                _answering_kubernetes(engine, data_dir, host, access, pages, quiet=announce is _ignore),
            ):
                stop.wait()
            leaves = stop.leaves and engine.can_leave
            if announce is not _ignore:
                left = f"continue for {format_duration(orphan_seconds)}, and the next start here resumes them"
                if slurm is not None:
                    left = "continue in Slurm, and the next start here with --on slurm resumes them"
                kept = leaves or slurm is not None
                click.echo(f"stopping: running trials {left if kept else 'end and start again next time'}", err=True)
        if leaves:
            engine.leave()
        engine.stop()
    return stop.exit_code


@contextmanager
def _answering_optuna(engine: Engine, directory: Path, *, quiet: bool) -> Iterator[None]:
    """Answer clients of Optuna once its packages are imported, without delaying the start."""
    from katib.doors.optuna_storage.server import StorageServer, line_to_copy

    with ExitStack() as stack:

        def listen() -> None:
            try:
                stack.enter_context(StorageServer(engine.chosen_trials, directory))
            except KatibError as error:
                logging.getLogger(__name__).warning("no client of Optuna can connect: %s", error)
                return
            if not quiet:
                click.echo(f"for Optuna:   storage={line_to_copy(directory)}")

        starting = threading.Thread(target=listen, name="optuna-storage", daemon=True)
        starting.start()
        try:
            yield
        finally:
            starting.join()


@contextmanager
def _answering_kubernetes(
    engine: Engine, directory: Path, host: str, access: _Access, pages: Mapping[str, Page], *, quiet: bool
) -> Iterator[None]:
    """Answer clients of the Kubernetes API, such as kubectl."""
    from katib.doors.kube_api.kubeconfig import line_to_copy
    from katib.doors.kube_api.server import KubernetesServer

    with ExitStack() as stack:
        try:
            stack.enter_context(
                KubernetesServer(engine.objects, directory, host=host, token=access.token(), pages=pages)
            )
        except KatibError as error:
            logging.getLogger(__name__).warning("no client of Kubernetes can connect: %s", error)
        else:
            if not quiet:
                click.echo(f"for kubectl:  {line_to_copy(directory)}")
        yield


_LOOK_SECONDS = 0.2
"""Python handles a signal that arrives just before the main thread waits only after the wait."""


class _StoppedEarly(BaseException):
    """A signal asked to stop while the engine was starting."""


class _Stop:
    """Waits for the first SIGINT or SIGTERM; a second one ends the process at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._raises = False
        self.exit_code = 0
        stop_on_signal(self._stop, _exit_code)

    def wait(self) -> None:
        """Return when a signal asks to stop."""
        while not self._event.wait(_LOOK_SECONDS):
            pass

    def request(self) -> None:
        """Ask to stop, from any thread."""
        self._event.set()

    def pause(self, seconds: float) -> bool:
        """Wait for this long; return whether a signal asked to stop."""
        return self._event.wait(seconds)

    @property
    def leaves(self) -> bool:
        """Whether programs may continue: the signal was SIGTERM, as at an upgrade, and not Ctrl-C."""
        return self.exit_code == 0

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Leave the block as soon as a signal asks to stop, or if one has before.

        Raises:
            _StoppedEarly: One did.
        """
        self._raises = True
        try:
            if self._event.is_set():
                raise _StoppedEarly
            yield
        finally:
            self._raises = False

    def _stop(self, number: int) -> None:
        self.exit_code = _exit_code(number)
        self._event.set()
        if self._raises:
            raise _StoppedEarly


def _exit_code(number: int) -> int:
    return INTERRUPTED if number == signal.SIGINT else 0
