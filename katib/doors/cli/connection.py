"""Selection of the service for a command: a server, the data directory in this process, or a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import click

from katib.doors.cli.options import DEFAULT_NAMESPACE, DEFAULT_SERVER, Cluster, Target, default_data_dir, has_data
from katib.doors.rest.door import reached_door
from katib.doors.rest.notes import account_directory, listens, note_of, running_servers, works_elsewhere
from katib.errors import InvalidError, NotFoundError, UnavailableError, invalid
from katib.model.names import CONFIRMS_LABEL
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import TuningService
from katib.service.tuning.titles import name_meant, namespace_in_use

if TYPE_CHECKING:
    from katib.places.cluster import OpenCluster, UserClusters


class Connected(NamedTuple):
    """An open service, and the default namespace."""

    service: TuningService
    namespace: str


@contextmanager
def connect(
    target: Target,
    *,
    read_only: bool,
    nothing_to_run: bool = False,
    starts: bool = False,
    creates: bool = False,
) -> Iterator[Connected]:
    """Open the service that the options name.

    A named cluster or server is used exclusively. Without one, a named data directory is opened, or the server or
    `katib run` that works in it is used. Without any, the default server is used; if none of this account runs, a
    command that only reads opens the default data directory. So does one that only stores objects for the next engine
    (`nothing_to_run`), and one that needs controllers to work meanwhile (`starts`), as for trials of callers and to
    delete experiments.

    If no namespace was named, a command that `creates` uses the default one. Any other uses the only namespace with
    experiments, as files of Katib name `kubeflow`; the default one if there are several.

    Raises:
        InvalidError: The URL is invalid, the cluster is unknown, or a package to reach it is not installed.
        UnavailableError: No server answers, and there is no data directory.
    """
    if target.cluster:
        with open_cluster(target.cluster) as opened:
            yield Connected(opened.service, target.namespace or opened.namespace)
        return
    namespace = target.namespace or (DEFAULT_NAMESPACE if creates else None)
    here: Callable[[Path], AbstractContextManager[TuningService]] | None = None
    if nothing_to_run or starts:
        here = partial(_engine_here, starts=starts)
    with _open_service(target, read_only=read_only, here=here) as service:
        yield Connected(service, namespace or namespace_in_use(service))


def experiment_meant(service: TuningService, namespace: str, name: str | None, *, with_confirming: bool = True) -> str:
    """Return the experiment of the given name or study title; without one, the name of the newest experiment.

    If there are others, the choice of the newest is reported. Experiments that confirm others may be left out.

    Raises:
        NotFoundError: No name was given, and there is no experiment.
    """
    if name is not None:
        return name_meant(service, namespace, name)
    found = service.experiments(namespace)
    names = [one.name for one in found if with_confirming or CONFIRMS_LABEL not in one.metadata.labels]
    if not names:
        raise NotFoundError(f"there is no experiment in namespace {namespace}; `katib get -A` lists those of all")
    if len(names) > 1:
        click.echo(f"{names[-1]}, the newest of {len(names)} experiments:", err=True)
    return names[-1]


def experiment_or_trial(service: TuningService, namespace: str, name: str) -> Experiment | Trial:
    """Return the experiment of a name or a title, or the trial.

    Raises:
        NotFoundError: There is neither.
    """
    with suppress(NotFoundError):
        return service.get(Experiment, namespace, name_meant(service, namespace, name))
    with suppress(NotFoundError):
        return service.get(Trial, namespace, name)
    raise NotFoundError(
        f'there is neither an experiment nor a trial "{name}" in namespace {namespace}; '
        "`katib get -A` lists all experiments"
    )


def open_cluster(cluster: Cluster) -> AbstractContextManager[OpenCluster]:
    """Return the tuning service of a cluster, as a context manager; its packages are imported only here.

    Raises:
        InvalidError: They are not installed.
    """
    with _explained():
        from katib.places.cluster import open_cluster as open_
    return open_(cluster.kubeconfig, cluster.context, db_manager=cluster.db_manager)


def await_api_server(cluster: Cluster, pause: Callable[[float], bool]) -> bool:
    """Return True as soon as the API server of a cluster answers, False if a pause was interrupted before that.

    Raises:
        InvalidError: As `open_cluster`.
    """
    with _explained():
        from katib.places.cluster import await_api_server as await_
    return await_(cluster.kubeconfig, cluster.context, pause)


def open_users(cluster: Cluster) -> AbstractContextManager[UserClusters]:
    """Return the tuning services of a cluster's users, as a context manager; otherwise as `open_cluster`."""
    with _explained():
        from katib.places.cluster import open_users as open_
    return open_(cluster.kubeconfig, cluster.context, db_manager=cluster.db_manager)


@contextmanager
def _explained() -> Iterator[None]:
    """Explain how to install a missing package."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "katib").partition(".")[0] in ("katib", "metrics_collector", "suggestion_services"):
            raise
        raise invalid(
            "--context",
            f"speaking to a cluster needs the package {error.name}, which is not installed",
            "pip install 'katib[cluster]'",
            "extra-missing",
        ) from error


@contextmanager
def _open_service(
    target: Target, *, read_only: bool, here: Callable[[Path], AbstractContextManager[TuningService]] | None
) -> Iterator[TuningService]:
    """Open a service; `here` opens one in a data directory that no engine works in."""
    server, data_dir = target.server, target.data_dir
    directory = data_dir or default_data_dir()
    if server is None and read_only:
        if (data_dir is not None or not _is_ours(DEFAULT_SERVER, target)) and directory.is_dir():
            yield _open_offline(directory, target.verbose)
            return
        if data_dir is not None:
            raise UnavailableError(f"there is no data directory {data_dir}; check --data-dir")
    url = server or DEFAULT_SERVER
    _check_url(url)
    running = next(iter(running_servers(directory)), None) if server is None else None
    with ExitStack() as stack:
        if server is None and running is None and (run := stack.enter_context(_run_at_work(directory))) is not None:
            yield run
            return
    if server is None and running is None and here is not None and (data_dir is not None or not _is_ours(url, target)):
        with here(directory) as service:
            yield service
        return
    if running is not None:
        url = running.url
    elif server is None and data_dir is None and has_data(directory) and works_elsewhere(DEFAULT_SERVER, directory):
        way = f"--data-dir {directory} asks {directory}"
        click.echo(f"note: this asks the server at {url}, which works elsewhere; {way}", err=True)
    if not listens(url):
        raise UnavailableError(_no_answer(url, named=server is not None, read_only=read_only))
    from katib.doors.rest.client import HttpTuningService

    token = target.token
    if token is None and (note := note_of(url, directory, account_directory())) is not None:
        url, token = note.url, note.token
    with HttpTuningService(url, token) as service:
        yield service


@contextmanager
def _engine_here(directory: Path, *, starts: bool) -> Iterator[TuningService]:
    from katib.places.machine import Layout, open_engine

    slurm = () if any(Layout(directory.absolute()).slurm.glob("*/")) else None  # there may be trials to end in Slurm
    with open_engine(data_dir=directory, own_process=False, slurm=slurm) as engine:
        if starts:
            engine.start_for(None)
        yield engine.service


@contextmanager
def _run_at_work(directory: Path) -> Iterator[TuningService | None]:
    """Yield the service of the `katib run` that works in a data directory; None if there is none."""
    with reached_door(directory) as path:
        if path is None:
            yield None
            return
        from katib.doors.rest.client import HttpTuningService

        with HttpTuningService("http://localhost", socket=path) as service:
            yield service


def _open_offline(directory: Path, verbose: int) -> TuningService:
    if verbose:
        click.echo(f"no server is asked; reading {directory}", err=True)
    from katib.places.machine import open_offline

    return open_offline(directory)


def _is_ours(url: str, target: Target) -> bool:
    """Return whether to use the server there: one of this account, or one whose token is known."""
    directories = (target.data_dir or default_data_dir(), account_directory())
    return (target.token is not None or note_of(url, *directories) is not None) and listens(url)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        valid = False
    if not valid:
        raise invalid("--server", f'"{url}" is not a URL', f"write it like {DEFAULT_SERVER}", "server-url")


def _current_context() -> str:
    """Return kubectl's current context; empty if there is none."""
    from katib.model.yaml_text import parse_yaml

    for place in (os.environ.get("KUBECONFIG") or "~/.kube/config").split(os.pathsep):
        with suppress(OSError, RuntimeError, InvalidError):  # the second if there is no home directory
            for document in parse_yaml(Path(place).expanduser().read_bytes(), place):
                context = document.data.get("current-context") if isinstance(document.data, dict) else None
                if isinstance(context, str) and context:
                    return context
    return ""


def _no_answer(url: str, *, named: bool, read_only: bool) -> str:
    if named:
        return f"no server answers at {url}; start it with `katib serve`, or check --server"
    if read_only:
        context = _current_context()
        cluster = f"; --context {context} asks your Kubernetes cluster" if context else ""
        return (
            f"no server answers at {url} and there is no data directory {default_data_dir()}; "
            f"start `katib serve`, or give --server or --data-dir{cluster}"
        )
    return f"no server answers at {url}; start one with `katib serve`, or use `katib run FILE`"
