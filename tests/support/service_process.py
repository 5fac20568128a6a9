"""A suggestion service in a process of its own that misbehaves on demand: `python service_process.py ADDRESS MODE`.

Modes: `good`; `no-health` has no health service; `exit` prints a line and exits; `crash` is killed in every
GetSuggestions, `killed` before it listens, `killed-in-shell` as a child of a shell, all until there is a file CURE;
`abort` dies of itself in every GetSuggestions; `crash-once` dies in the first one of all processes that share the file
MARK; `hang` never answers GetSuggestions; `deaf` never listens; `stubborn` ignores SIGTERM. A request for trial counts
above 100 waits a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import health_pb2
from katib.wire.rpc.services import add_servicer


class Service:
    def __init__(self, mode: str) -> None:
        self._mode = mode

    def GetSuggestions(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        if self._mode == "crash" and not is_cured():
            os.kill(os.getpid(), signal.SIGKILL)
        if self._mode == "abort":
            os.kill(os.getpid(), signal.SIGABRT)
        if self._mode == "crash-once" and not (mark := Path(os.environ["MARK"])).exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self._mode == "hang":
            threading.Event().wait()
        value = pb.ParameterAssignment(name="pid", value=str(os.getpid()))
        assignments = pb.GetSuggestionsReply.ParameterAssignments(assignments=[value])
        return pb.GetSuggestionsReply(parameter_assignments=[assignments] * request.current_request_number)

    def ValidateAlgorithmSettings(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        return pb.ValidateAlgorithmSettingsReply()


class Health:
    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        if request.service != "manager.v1beta1.Suggestion":
            context.abort(grpc.StatusCode.NOT_FOUND, "as Katib's images do")
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


def is_cured() -> bool:
    return Path(os.environ["CURE"]).exists()


def main(address: str, mode: str) -> int:
    if mode == "killed" and not is_cured():
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "killed-in-shell" and not is_cured():
        return 128 - subprocess.run(["sh", "-c", "kill -9 $$"], check=False).returncode
    if mode == "exit":
        sys.stdout.write("fake: the package imaginary is missing; run pip install imaginary\n")
        return 3
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "deaf":
        threading.Event().wait()
    server = grpc.server(ThreadPoolExecutor(max_workers=16))
    add_servicer(server, Service(mode), pb)
    if mode != "no-health":
        add_servicer(server, Health(), health_pb2)
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
