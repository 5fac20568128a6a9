"""The server process: binds, serves until a signal, and exits immediately.

`python -m suggestion_services --algorithm tpe --address 127.0.0.1:6789` prints nothing unless something fails. A
repeated `--algorithm` serves several algorithms, as Katib's images do; `--suggestion` or `--early-stopping` serves all
of one kind.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from katib.errors import KatibError, TerminalError, code_of, shortage_of
from katib.wire.rpc._generated import api_pb2, early_stopping_pb2, health_pb2
from katib.wire.rpc.services import SERVER_OPTIONS, add_servicer
from suggestion_services.algorithms import ENTRIES, ListedAlgorithm, find_entry
from suggestion_services.base.servicer import ServedAlgorithm, SuggestionServicer, add_to_server, shortages

_THREADS = 10  # as in Katib's own services; further experiments wait
_HEALTHY = frozenset({"", "manager.v1beta1.Suggestion"})  # the second is the service that Katib's probes name
_STOP_SECONDS = 0.2
_LOOK_SECONDS = (
    0.5  # a signal just before the main thread waits does not interrupt the wait: Python handles it afterwards
)
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)  # cores belong to the trials


class HealthServicer:
    """Health checks for the services that this process knows."""

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in _HEALTHY:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service}")
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


def start_server(entries: Sequence[ListedAlgorithm], address: str) -> tuple[grpc.Server, int]:
    """Start serving algorithms of one kind, and return the server and its port (0 for a Unix socket).

    A single algorithm is imported at once. Several are imported on first use: most are never used.

    Raises:
        TerminalError: The address cannot be bound, or a package that an algorithm needs is missing.
    """
    for entry in entries:
        entry.check_installed()
    server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="request"), options=SERVER_OPTIONS)
    if entries[0].info.early_stopping:
        from suggestion_services.early_stopping.servicer import ManyStoppingServicer

        servicers = ManyStoppingServicer({one.info.name: one.servicer() for one in entries})
        add_servicer(server, servicers, api_pb2, early_stopping_pb2)
    else:
        add_to_server(SuggestionServicer(ServedAlgorithm(one.info, one.load) for one in entries), server)
    add_servicer(server, HealthServicer(), health_pb2)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = None
    if port is None:
        raise TerminalError(f"--address: cannot listen on {address}; choose a free port or a path in a writable folder")
    server.start()
    if len(entries) == 1:
        threading.Thread(target=entries[0].load, name="load", daemon=True).start()
    return server, 0 if address.startswith("unix:") else port


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or, with `--exit-with-stdin`, the end of standard input."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not (options.algorithm or options.suggestion or options.early_stopping):
        parser.error("name what to serve with --algorithm, --suggestion or --early-stopping")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a library's deprecation warnings mean nothing to the user of a service
    for variable in _THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    threading.excepthook = _thread_failed
    try:
        server, _ = start_server(_entries(options), options.address)
    except KatibError as error:
        sys.stderr.write(f"{error}\n")
        return code_of(error).exit_code
    if options.exit_with_stdin:
        threading.Thread(target=_wait_for_stdin, args=(stop,), daemon=True).start()
    while not stop.wait(_LOOK_SECONDS) and not shortages:  # the failed request has been answered by then
        pass
    server.stop(None).wait(_STOP_SECONDS)
    for shortage in shortages[:1]:
        sys.stderr.write(f"{shortage}\n")
        sys.stderr.flush()
    os._exit(
        os.EX_TEMPFAIL if shortages else 0
    )  # a library deep in a computation would hold up a normal exit, and no client waits for its answer


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    """Record a shortage that ended a thread: gRPC's polling thread, or the one that imports the algorithm."""
    shortage = None if failed.exc_value is None else shortage_of(failed.exc_value)
    if shortage is None:
        threading.__excepthook__(failed)
    else:
        shortages.append(shortage)


def _wait_for_stdin(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


def _entries(options: argparse.Namespace) -> Sequence[ListedAlgorithm]:
    names = list(dict.fromkeys(options.algorithm or ()))
    if not names:
        return [e for e in ENTRIES if e.info.early_stopping == options.early_stopping and e.is_installed]
    suggesting = {entry.info.name for entry in ENTRIES if not entry.info.early_stopping}
    stopping = {entry.info.name for entry in ENTRIES if entry.info.early_stopping}
    only_stopping = stopping.issuperset(names) and not suggesting.issuperset(names) and not options.suggestion
    return [find_entry(name, early_stopping=options.early_stopping or only_stopping) for name in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="suggestion_services", description="Serve an algorithm over gRPC.")
    names = ", ".join(dict.fromkeys(entry.info.name for entry in ENTRIES))
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--suggestion", action="store_true", help="all suggestion algorithms together")
    kind.add_argument("--early-stopping", action="store_true", help="all early stopping algorithms together")
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        action="append",
        help=f"only this one, of the kind if one is given; repeat it to serve several: {names}",
    )
    parser.add_argument("--address", required=True, help="unix:/path/of/socket or host:port")
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when standard input ends")
    return parser
