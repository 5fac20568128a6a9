"""Requests of a browser that opens a page, as opposed to those of scripts and programs.

A page may be reached by a link of another site, such as a mail or a dashboard: that site cannot read the answer, and a
page changes nothing. Data, and whatever changes something, may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from typing_extensions import Protocol

from katib.doors.rest.problems import Problem

_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(?::(?P<port>\d+))?", re.ASCII)
_JOINED_BY = {"cookie": "; "}


class Headers:
    """Headers of a request; repeated ones are joined, so that a second Host cannot hide behind the first."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, str] = {}
        for raw_name, raw_value in raw:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
            between = _JOINED_BY.get(name, ", ")
            self._values[name] = f"{self._values[name]}{between}{value}" if name in self._values else value

    def get(self, name: str) -> str:
        """Return the value of a header, named in lower case; empty when it is absent."""
        return self._values.get(name, "")

    @property
    def host_name(self) -> str:
        """The name in the Host header, without port and brackets, in lower case; empty when it is malformed."""
        match = _HOST.fullmatch(self.get("host"))
        return (match["v6"] or match["name"]).lower() if match else ""

    @property
    def port(self) -> str:
        """The port in the Host header; empty when there is none, which is that of the scheme."""
        match = _HOST.fullmatch(self.get("host"))
        return (match["port"] or "") if match else ""


UI_PREFIX = "/katib"
"""Prefix of the page for people: Katib's dashboards and gateways send them here. The API answers below it, too, so
that a gateway that knows no other path gives the page all it needs."""

ENTRANCES = frozenset(f"{UI_PREFIX}/{name}" for name in ("open", "sign-in", "sign-out"))
"""Paths to sign in and out; the routes themselves ask for a token."""

_ASSETS = f"{UI_PREFIX}/static/"
_OTHER_PAGES = frozenset({"/", "/docs", UI_PREFIX})
_DATA = re.compile(rf"{UI_PREFIX}/(?:api|data|static|openapi\.json|\w+_(?:experiments?|template)|fetch_\w+)(?:/.*)?")
_OWN_SITES = frozenset({"", "same-origin", "none"})


class ShowProblem(Protocol):
    """Returns the page that explains why there is not the one that was asked for."""

    def __call__(self, request: Request, problem: Problem, /) -> Response:
        """Return the page."""


class PageRouter(APIRouter):
    """Routes with pages for people."""

    def __init__(self, show_problem: ShowProblem) -> None:
        super().__init__()
        self.show_problem = show_problem


def is_own_site(headers: Headers) -> bool:
    """Return whether a page of this server asks, a person typed the address, or a program asks."""
    return not has_foreign_origin(headers) and headers.get("sec-fetch-site").lower() in _OWN_SITES


def has_foreign_origin(headers: Headers) -> bool:
    """Return whether a browser says that the page of another server asks."""
    origin = headers.get("origin")
    return bool(origin) and urlsplit(origin).netloc.lower() != headers.get("host").lower()


def is_visit(method: str, path: str, headers: Headers) -> bool:
    """Return whether a browser goes to a page, in a window of its own and not in a frame, wherever the link was."""
    return (
        method == "GET"
        and is_page(path)
        and not has_foreign_origin(headers)
        and headers.get("sec-fetch-mode").lower() == "navigate"
        and headers.get("sec-fetch-dest").lower() == "document"
    )


def wants_page(method: str, path: str, headers: Headers) -> bool:
    """Return whether the answer is shown to a person, also if it is an error."""
    return method == "GET" and is_page(path) and "text/html" in headers.get("accept").lower()


def is_page(path: str) -> bool:
    """Return whether a path leads to a page: it shows something to a person, and changes nothing."""
    return path in _OTHER_PAGES or (path.startswith(f"{UI_PREFIX}/") and not _DATA.fullmatch(path))


def needs_no_token(path: str) -> bool:
    """Return whether a path is answered without a session: the doors, and the styles of pages."""
    return path in ENTRANCES or path.startswith(_ASSETS)


def is_browser(headers: Headers) -> bool:
    """Return whether a browser asks, for a page or for a script in one: it would show a window of its own for Basic."""
    return bool(headers.get("sec-fetch-mode")) or headers.get("user-agent").startswith("Mozilla/")
