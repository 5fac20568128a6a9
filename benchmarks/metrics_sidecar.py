"""Cost of a collector beside an idle program: `python -m benchmarks.metrics_sidecar`.

For each kind the sidecar runs as in a pod, on a program that sleeps. Its processor time and its memory are the kernel's
figures, without its start. Prometheus is scraped once a second anyway, a small endpoint with 50 samples;
TensorFlowEvent polls 100 event files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.support import memory_mb, options, processor_seconds
from tests.support.pods import launched_command

LIMIT_SHARE = 0.005
LIMIT_MB = 60.0
WARM_UP_SECONDS = 5.0
EVENT_FILES = 100
KINDS = ("File", "TensorFlowEvent", "PrometheusMetric")


def main() -> int:
    seconds = options(__doc__, seconds=20.0).seconds
    failed = False
    print(f"{'kind':18} {'share of a core':>16} {'limit':>7} {'ratio':>6} {'memory':>8} {'limit':>6} {'ratio':>6}")
    for kind in KINDS:
        share, memory = measure(kind, seconds)
        failed |= share > LIMIT_SHARE or memory > LIMIT_MB
        print(
            f"{kind:18} {share:16.2%} {LIMIT_SHARE:7.1%} {share / LIMIT_SHARE:6.2f} "
            f"{memory:5.0f} MB {LIMIT_MB:3.0f} MB {memory / LIMIT_MB:6.2f}"
        )
    return int(failed)


def measure(kind: str, seconds: float) -> tuple[float, float]:
    """Return the share of a core and the megabytes of an idle collector."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pid = stack.enter_context(sidecar(kind, directory, stack.enter_context(endpoint())))
        time.sleep(WARM_UP_SECONDS)
        before, began = processor_seconds(pid), time.monotonic()
        time.sleep(seconds)
        return (processor_seconds(pid) - before) / (time.monotonic() - began), memory_mb(pid, "VmHWM")


@contextmanager
def sidecar(kind: str, directory: Path, port: int) -> Iterator[int]:
    """Run a collector beside a program that sleeps; yields the collector's process id."""
    flags = ["-path", str(directory / "metrics.log"), "-format", "TEXT"]
    if kind == "TensorFlowEvent":
        flags = ["-path", str(directory)]
        for i in range(EVENT_FILES):
            (directory / f"events.out.tfevents.{i}.host").write_bytes(b"\0" * 4)  # the beginning of a record
    environment = {"KATIB_COLLECTOR_KIND": kind, "KATIB_LAUNCHER_DIRECTORY": str(directory)}
    if kind == "PrometheusMetric":
        flags = []
        environment["KATIB_METRICS_HTTP_GET"] = json.dumps({"host": "127.0.0.1", "port": port})
    program = subprocess.Popen(launched_command(["sleep", "3600"], str(directory)))
    head = [sys.executable, "-m", "metrics_collector", "-t", "t", "-m", "loss", "-o-type", "minimize"]
    collector = subprocess.Popen(
        [*head, "-s-db", "127.0.0.1:1", *flags],
        env={**os.environ, **environment, "KATIB_TERMINATION_LOG": str(directory / "said")},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield collector.pid
    finally:
        for process in (collector, program):
            process.kill()  # and with the launcher its program
            process.wait()


@contextmanager
def endpoint() -> Iterator[int]:
    """Serve 50 samples; yields the port."""
    body = b"".join(b'metric_%d{label="value"} %d\n' % (i, i) for i in range(49)) + b"loss 0.5\n"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    sys.exit(main())
