"""The port to which trials post the status of Kubeflow Trainer (`katib.wire.rpc.trainer_status`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from katib.errors import KatibError, code_of, invalid, one_line
from katib.model.loadable import Deferred
from katib.wire.rpc.tokens import path_of
from katib.wire.serving.listening import Message, Receive, Send, ServerThread, listen, tls_of_files

if TYPE_CHECKING:
    from katib.wire.rpc.trainer_status import StatusReceiver

_MOST_BYTES = 1 << 18


class StatusServer:
    """Receives the status of trials over HTTP. Thread-safe.

    Args:
        receiver: Returns the receiver of each status; called once, with the first one.
        port: Port; 0 for a free one.
        certificate: Files with the certificate and its key; None for plain HTTP.

    Raises:
        InvalidError: The address cannot be listened on.
    """

    def __init__(
        self,
        receiver: Callable[[], StatusReceiver],
        host: str = "127.0.0.1",
        port: int = 0,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self._receiver = Deferred(receiver)
        listening = listen(host, port)
        self._base = f"{'https' if certificate else 'http'}://{host}:{listening.getsockname()[1]}"
        tls = certificate and tls_of_files(*certificate)
        self._thread = ServerThread(self._answer, [listening], "trainer-status", at_once=False, tls=tls)

    def url_of(self, trial_name: str, metrics: Collection[str]) -> str:
        """Return the URL to which a trial posts its status, of which these metrics are stored."""
        return self._base + path_of(trial_name, metrics)

    def close(self) -> None:
        self._thread.close()

    def _take(self, path: str, query: str, token: str | None, body: bytes) -> None:
        self._receiver.get().take(path, query, token, body)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        from katib.wire.serving.blocking import body_of, respond

        status, content = 200, b"{}"
        try:
            body = await body_of(receive, _MOST_BYTES)
            if body is None:
                raise invalid("body", "it is too large", f"post at most {_MOST_BYTES} bytes", "trainer-status")
            if scope["method"] != "POST":
                raise invalid("method", f"{scope['method']} is not for this route", "use POST", "trainer-status")
            token = _token_in(dict(scope["headers"]))
            path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
            await asyncio.to_thread(self._take, path, query, token, body)
        except KatibError as error:
            status, content = code_of(error).http_status, json.dumps({"message": one_line(error)}).encode()
        await respond(send, status, "application/json", content)


def _token_in(headers: Mapping[bytes, Any]) -> str | None:
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
