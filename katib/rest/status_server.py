"""The port at which trials of one machine post the status of Kubeflow Trainer (`katib.rpc.trainer_status`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from katib.errors import KatibError, code_of, invalid, one_line
from katib.rest.listening import Message, Receive, Send, ServerThread, listen
from katib.rpc.trainer_status import StatusReceiver, path_of

_HOST = "127.0.0.1"
_MOST_BYTES = 1 << 18


class StatusServer:
    """Takes the status of trials over HTTP, on a port of the loopback interface. Thread-safe.

    Args:
        receiver: What takes it.
    """

    def __init__(self, receiver: StatusReceiver) -> None:
        self._receiver = receiver
        listening = listen(_HOST, 0)
        self._port = listening.getsockname()[1]
        self._thread = ServerThread(self._answer, [listening], "trainer-status", at_once=False)

    def url_of(self, trial_name: str) -> str:
        """Return where a trial posts its status."""
        return f"http://{_HOST}:{self._port}{path_of(trial_name)}"

    def close(self) -> None:
        """Take no more."""
        self._thread.close()

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, content = 200, b"{}"
        try:
            body = await _body(receive)
            if scope["method"] != "POST":
                raise invalid("method", f"{scope['method']} is not for this route", "use POST", "trainer-status")
            token = _token_in(dict(scope["headers"]))
            await asyncio.to_thread(self._receiver.take, scope["raw_path"].decode("latin-1"), token, body)
        except KatibError as error:
            status, content = code_of(error).http_status, json.dumps({"message": one_line(error)}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


async def _body(receive: Receive) -> bytes:
    """Return the body of a request, which is read to its end in any case.

    Raises:
        InvalidError: It is too large.
    """
    body, size, more = bytearray(), 0, True
    while more:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size <= _MOST_BYTES:
            body += part
        more = message.get("more_body", False)
    if size > _MOST_BYTES:
        raise invalid("body", "it is too large", f"post at most {_MOST_BYTES} bytes", "trainer-status")
    return bytes(body)


def _token_in(headers: Mapping[bytes, Any]) -> str | None:
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
