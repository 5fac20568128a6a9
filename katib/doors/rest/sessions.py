"""Sessions of browsers: they sign in with the token once, and then carry a cookie.

A link with a ticket, or the token typed into a form, is exchanged for a cookie. A ticket is signed with a key that each
start makes, and opens once, within minutes and until someone signs out, so a link that was left behind in a terminal or
a browser's history opens nothing later. The cookie is signed with the token and says when it ends: it survives a
restart of the server, ends with the token or when its browser signs out, and does not reveal the token.

Browsers send the cookies of a host to all its ports, so also to a server that another account runs on this machine.
Therefore the link names the server by a host name of its own below `localhost`, which cannot be guessed without the
token. Time is handed in.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field

from katib.doors.rest.signed_out import SignedOut

LIFETIME_SECONDS = 30 * 86_400
"""A cookie that gets into wrong hands is of use for so long at most."""

LINK_SECONDS = 600
"""A link opens for so long after it was made; `katib ui` makes another."""

MOST_VALUES = 8
"""So many cookies of our name are looked at: a server on another port of the same host can set more beside ours."""

_COOKIE = re.compile(r"(?P<end>[0-9]{1,12})\.(?P<mac>[0-9a-f]{64})")
_TICKET = re.compile(r"(?P<signed>(?P<made>[0-9]{1,15})\.[0-9a-f]{16})\.(?P<mac>[0-9a-f]{64})")
_HOST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Sessions:
    """Signs browsers in.

    Attributes:
        link_key: Signs the tickets of links to this start of the server; empty: no browser gets in, by link or cookie.
        signed_out: Cookies and links that are no longer valid.
    """

    token: bytes
    link_key: str = ""
    signed_out: SignedOut = field(default_factory=SignedOut)

    def is_token(self, given: bytes) -> bool:
        """Return whether this is the server's token."""
        return hmac.compare_digest(given, self.token)

    def use_ticket(self, given: str, now: float) -> bool:
        """Return whether a link with this ticket opens the running server now, which it does once.

        Args:
            given: Ticket of the link.
            now: Seconds since 1970.
        """
        match = _TICKET.fullmatch(given)
        if match is None or not self.link_key:
            return False
        expected = _digest(self.link_key.encode(), "link", match["signed"])
        if not hmac.compare_digest(match["mac"], expected):
            return False
        made = int(match["made"]) / 1000
        return now - LINK_SECONDS < made and self.signed_out.use(match["signed"], made, made + LINK_SECONDS, now)

    def new_value(self, now: float) -> str:
        """Return the value of a cookie that is good from now on.

        Args:
            now: Seconds since 1970.
        """
        end = int(now) + LIFETIME_SECONDS
        while (value := f"{end}.{_digest(self.token, 'session', str(end))}") in self.signed_out:
            end -= 1  # signed out within this second
        return value

    def is_valid(self, values: Iterable[str], now: float) -> bool:
        """Return whether one of the values of a cookie is ours, has not ended and was not signed out."""
        return bool(self._valid(values, now))

    def sign_out(self, values: Iterable[str], now: float) -> None:
        """End the sessions of these values of a cookie, copies included, and the links that were made until now.

        Values that let no browser in end nothing.
        """
        for value in self._valid(values, now):
            self.signed_out.add(value, int(value.partition(".")[0]), now)

    def host_name(self) -> str:
        """Return the name of the server's own below `localhost`: browsers take it for this machine."""
        return f"katib-{_digest(self.token, 'host')[:_HOST_DIGITS]}.localhost"

    def _valid(self, values: Iterable[str], now: float) -> list[str]:
        if not self.link_key:
            return []
        some = (value for value, _ in zip(values, range(MOST_VALUES), strict=False))
        return [value for value in some if self._is_ours(value, now) and value not in self.signed_out]

    def _is_ours(self, value: str, now: float) -> bool:
        match = _COOKIE.fullmatch(value)
        if match is None:
            return False
        expected = _digest(self.token, "session", match["end"])
        return hmac.compare_digest(match["mac"], expected) and now < int(match["end"]) <= now + LIFETIME_SECONDS


def new_ticket(link_key: str, now: float) -> str:
    """Return the ticket of a new link.

    Args:
        now: Seconds since 1970.
    """
    signed = f"{int(now * 1000)}.{secrets.token_hex(8)}"
    return f"{signed}.{_digest(link_key.encode(), 'link', signed)}"


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
