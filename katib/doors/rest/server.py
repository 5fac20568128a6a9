"""The server of a tuning service: its access control and its addresses."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

from fastapi import APIRouter

from katib.doors.rest.app import MakePages, create_app
from katib.doors.rest.guard import LOOPBACK_HOSTS
from katib.doors.rest.sessions import Sessions, new_ticket
from katib.doors.rest.signed_out import SignedOut
from katib.doors.rest.streams import Closing
from katib.doors.rest.visits import UI_PREFIX
from katib.engine.controllers.metrics import Page
from katib.errors import FieldError, InvalidError
from katib.service.tuning.service import TuningService
from katib.service.tuning.users import Gateway
from katib.wire.serving.listening import ServerThread, listen

_LINK_KEY_BYTES = 24
_BESIDE = "::1"


class Server:
    """Serves a tuning service over HTTP from construction on until closed.

    Args:
        service: One service for all requests, or behind a gateway one for each user.
        host: Address or name to listen on.
        port: Port; 0 takes a free one.
        token: Required when the host is not a loopback address; behind a gateway it is the gateway that carries it.
        pages: Pages for monitoring, by path (`create_app`).
        ui: The page for people (`create_app`).
        signed_out: File of signed-out cookies; None: a restart forgets them.
        doors: Routes in the protocols of other libraries (`create_app`).

    Attributes:
        url: Its address, with the host as it was named.
        page: Address of the page for people, as a link that lets a browser in once if a token is asked for; empty
            if there is no page, or its address is not known here.
        link_key: Makes further links (`katib.doors.rest.sessions.new_ticket`); empty if no link needs one.
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
        self._thread = ServerThread(app, self._sockets, "katib-rest")

    def close(self) -> None:
        """End the streams, let requests finish for a few seconds, and stop listening. Closing twice is fine."""
        self._closing.begin()
        self._thread.close()

    def _take_own_name(self, sessions: Sessions) -> str:
        """Return the host name under which browsers find this server and no other; empty if there is none.

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
