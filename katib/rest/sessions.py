"""How a browser gets in where a token is asked for, and stays in without carrying the token.

A link with the server's ticket, or the token typed into a form, is exchanged for a cookie. A new ticket is made at
each start, so a link that was left behind in a terminal or a browser's history opens nothing later. The cookie is
signed with the token and says when it ends: it survives a restart of the server, ends with the token, and does not
reveal it.

Browsers send the cookies of a host to all its ports, so also to a server that another account runs on this machine.
Therefore the link names the server by a host name of its own below `localhost`, which cannot be guessed without the
token. Pure: time is handed in.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass

LIFETIME_SECONDS = 30 * 86_400
"""A cookie that gets into wrong hands is of use for so long at most."""

MOST_VALUES = 8
"""So many cookies of our name are looked at: a server on another port of the same host can set more beside ours."""

_COOKIE = re.compile(r"(?P<end>[0-9]{1,12})\.(?P<mac>[0-9a-f]{64})")
_HOST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Sessions:
    """What lets a browser in.

    Attributes:
        token: Of the server.
        ticket: What the link of this start carries; empty: there is no link.
    """

    token: bytes
    ticket: str = ""

    def is_token(self, given: bytes) -> bool:
        """Return whether this is the server's token."""
        return hmac.compare_digest(given, self.token)

    def is_ticket(self, given: str) -> bool:
        """Return whether this is the ticket of the running server."""
        return bool(self.ticket) and hmac.compare_digest(given.encode(), self.ticket.encode())

    def new_value(self, now: float) -> str:
        """Return the value of a cookie that is good from now on.

        Args:
            now: Seconds since 1970.
        """
        end = str(int(now) + LIFETIME_SECONDS)
        return f"{end}.{_digest(self.token, 'session', end)}"

    def is_valid(self, values: Iterable[str], now: float) -> bool:
        """Return whether one of the values of a cookie is ours and has not ended."""
        return any(self._is_ours(value, now) for value, _ in zip(values, range(MOST_VALUES), strict=False))

    def host_name(self) -> str:
        """Return the name of the server's own below `localhost`: browsers take it for this machine."""
        return f"katib-{_digest(self.token, 'host')[:_HOST_DIGITS]}.localhost"

    def _is_ours(self, value: str, now: float) -> bool:
        match = _COOKIE.fullmatch(value)
        if match is None:
            return False
        expected = _digest(self.token, "session", match["end"])
        return hmac.compare_digest(match["mac"], expected) and now < int(match["end"]) <= now + LIFETIME_SECONDS


def cookie_name(port: str) -> str:
    """Return the name of the cookie of the server that a browser reaches at this port: hosts share theirs."""
    return f"katib-{port}"


def cookie_values(header: str, name: str) -> list[str]:
    """Return the values that a Cookie header has for a name, in its order."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return [value for key, _, value in pairs if key == name]


def set_cookie(name: str, value: str, *, seconds: int, secure: bool) -> str:
    """Return a Set-Cookie header: for this server's requests only, and not for scripts.

    Args:
        name: Of the cookie.
        value: Of the cookie.
        seconds: How long the browser keeps it; 0 makes it forget the cookie.
        secure: Whether it may go over https only.
    """
    end = "; Secure" if secure else ""
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{end}"


def _digest(token: bytes, *about: str) -> str:
    return hmac.new(token, "\n".join(("katib", *about)).encode(), hashlib.sha256).hexdigest()
