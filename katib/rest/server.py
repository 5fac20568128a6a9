"""Listening: one socket, one uvicorn server on a thread of its own, ended in an orderly way."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

import uvicorn
from fastapi import APIRouter

from katib.controllers.metrics import Page
from katib.errors import FieldError, InvalidError
from katib.rest.app import MakePages, create_app
from katib.rest.guard import LOOPBACK_HOSTS
from katib.rest.sessions import Sessions, new_ticket
from katib.rest.signed_out import SignedOut
from katib.rest.streams import Closing
from katib.rest.users import Gateway
from katib.rest.visits import UI_PREFIX
from katib.tuning.service import TuningService

_DRAIN_SECONDS = 5
_LINK_KEY_BYTES = 24
_BESIDE = "::1"


class Server:
    """Serves a tuning service over HTTP from construction on until closed.

    Args:
        service: What answers: one service for all requests, or behind a gateway one for each user.
        host: Address or name to listen on.
        port: Port; 0 takes a free one.
        token: Required when the host is not a loopback address; behind a gateway it is the gateway that carries it.
        pages: What monitoring reads, by path (`create_app`).
        ui: The page for people (`create_app`).
        signed_out: File that keeps who signed out; None: a restart forgets it.
        doors: Routes in the protocols of other libraries (`create_app`).

    Attributes:
        url: Where it listens, as its host was named.
        address: Where it listens, as an address.
        port: Its port.
        page: Address of the page for people, as a link that lets a browser in where a token is asked for; empty where
            there is no page, or its address is not known here. A link opens for an hour.
        link_key: Makes further links (`katib.rest.sessions.new_ticket`); empty where no link needs one.
        is_open: Whether every client that reaches it may do everything.

    Raises:
        InvalidError: The port is in use or not ours to take, the host is unknown, or the token is missing.
    """

    def __init__(
        self,
        service: TuningService | Gateway,
        *,
        host: str,
        port: int,
        token: str | None = None,
        pages: Mapping[str, Page] = MappingProxyType({}),
        ui: MakePages | None = None,
        signed_out: Path | None = None,
        doors: Sequence[APIRouter] = (),
    ) -> None:
        loopback, behind_gateway = is_loopback(host), isinstance(service, Gateway)
        if not loopback and not token:
            raise InvalidError([_no_token(host, behind_gateway=behind_gateway)])
        self._sockets = [listen(host, port)]
        address, self.port = self._sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"
        self.address = f"http://[{address}]:{self.port}" if ":" in address else f"http://{address}:{self.port}"
        self.link_key = secrets.token_urlsafe(_LINK_KEY_BYTES) if token else ""
        sessions = Sessions(token.encode(), self.link_key, SignedOut(signed_out)) if token else None
        own_name = self._take_own_name(sessions) if sessions else ""
        # This machine reaches by its loopback address a server that listens at all addresses.
        here = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, shown)  # noqa: S104 - compared with, not listened on
        base = f"http://{own_name or here}:{self.port}"
        way_in = f"open?ticket={new_ticket(self.link_key, time.time())}" if sessions else ""
        self.page = f"{base}{UI_PREFIX}/{way_in}" if ui and not behind_gateway else ""
        self.is_open = not token and not behind_gateway
        self._closing = Closing()
        # Beyond loopback and behind a gateway the names are not known: a token or a login keeps foreign pages out.
        hosts = LOOPBACK_HOSTS | {host, own_name} - {""} if loopback and not behind_gateway else None
        app = create_app(
            service, sessions=sessions, allowed_hosts=hosts, closing=self._closing, pages=pages, ui=ui, doors=doors
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": self._sockets}, name="katib-rest", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the streams, let requests finish for a few seconds, and stop listening. Closing twice is fine."""
        self._closing.begin()
        self._server.should_exit = True
        self._thread.join()
        for listening in self._sockets:
            listening.close()

    def _take_own_name(self, sessions: Sessions) -> str:
        """Return the host name under which browsers find this server and no other; empty where there is none.

        They look for names below `localhost` at ::1 first, so no other process may listen there.
        """
        if self._sockets[0].getsockname()[0] != "127.0.0.1":
            return ""
        try:
            self._sockets.append(listen(_BESIDE, self.port))
        except InvalidError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE:
                return ""
        return sessions.host_name()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _no_token(host: str, *, behind_gateway: bool) -> FieldError:
    if behind_gateway:
        cause = f"{host} can be reached past the gateway, and anyone who sets its header there is any user"
        remedy = "set a token that only the gateway sends, with --token or KATIB_TOKEN, or listen on 127.0.0.1"
        return FieldError("--host", cause, f"{remedy} behind a proxy in the same pod", "token-required")
    cause = f"{host} can be reached from other machines, and an experiment runs commands on this one"
    remedy = "set a token with --token or KATIB_TOKEN, or listen on 127.0.0.1"
    return FieldError("--host", cause, remedy, "token-required")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        InvalidError: The port is in use or not ours to take, or the host is unknown.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=512)
    except OSError as error:
        raise InvalidError([_listen_error(host, port, error)]) from error
    # Without it a body waits until its header is acknowledged, which the other side delays by 40 ms. Connections
    # inherit it; asyncio sets it only on sockets that name their protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _listen_error(host: str, port: int, error: OSError) -> FieldError:
    if error.errno == errno.EADDRINUSE:
        return FieldError(
            "--port",
            f"port {port} on {host} is in use by another program",
            "stop it, or choose another port, such as --port 0 for a free one",
            "port-in-use",
        )
    if error.errno == errno.EACCES:
        return FieldError("--port", f"port {port} needs privileges", "choose one above 1023", "port-privileged")
    return FieldError("--host", f"cannot listen on {host}: {error.strerror}", "use 127.0.0.1", "host-unknown")
