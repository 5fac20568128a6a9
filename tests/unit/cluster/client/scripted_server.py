"""An HTTP server that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HANG_UP = 0
"""As a status: end the connection without an answer."""


@dataclass(frozen=True)
class Answer:
    """One scripted answer."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    authorization: str | None
    body: Any


class ScriptedServer:
    """Answers in the order of `answers`; when they have run out, with the last one."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answers: deque[Answer] = deque([Answer()])
        self.asked: list[Asked] = []

    def script(self, *answers: Answer) -> None:
        """Say what to answer."""
        self.answers = deque(answers)

    def next_answer(self) -> Answer:
        """Return what to answer now."""
        return self.answers.popleft() if len(self.answers) > 1 else self.answers[0]

    def kubeconfig(self, folder: Path, *, user: Mapping[str, Any] | None = None, name: str = "config") -> Path:
        """Write a kubeconfig that leads here."""
        path = folder / name
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": dict(user or {"token": "secret"})}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "team"}}],
            "current-context": "here",
        }
        path.write_text(json.dumps(config))
        return path


@contextmanager
def serving() -> Iterator[ScriptedServer]:
    """Run a scripted server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            script.asked.append(Asked(self.command, self.path, self.headers.get("Authorization"), body))
            answer = script.next_answer()
            if answer.status == HANG_UP:
                self.close_connection = True
                return
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            for header, value in answer.headers.items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of http.server

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script = ScriptedServer(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
