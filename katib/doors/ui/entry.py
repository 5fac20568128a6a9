"""Sign-in and sign-out, and the page for errors."""

from __future__ import annotations

import re
import time
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from katib.doors.rest.guard import is_signed_in, session_cookie
from katib.doors.rest.problems import Problem
from katib.doors.rest.routing import sessions_of
from katib.doors.rest.sessions import LIFETIME_SECONDS, cookie_values, set_cookie
from katib.doors.rest.visits import Headers, is_own_site
from katib.doors.ui.rendering import here_of, render

HOME = "./"
_PAGE = re.compile(r"(?!.*(?:^|/)\.\.?(?:/|\?|$))(?:[\w.~-]+(?:/[\w.~-]*)*)?(?:\?[\w.~!$&'()*+,;=:@/?%-]*)?", re.ASCII)
_CAUSES = {
    "token": "That is not the token of this server.",
    "ticket": "This link is not valid any more: it opens once, within ten minutes, and only until the server stops.",
}


def entry_routes() -> APIRouter:
    """Return the routes for signing in and out."""
    router = APIRouter()

    @router.get("/open")
    def open_link(request: Request, ticket: str = "", page: str = "") -> Response:
        sessions, place = sessions_of(request), f"{HOME}{page_within(page)}"
        if sessions is None:
            return _go(place)
        if not sessions.use_ticket(ticket, time.time()):
            return _go(place) if is_signed_in(request.scope) else _sign_in(request, page, cause=_CAUSES["ticket"])
        answer = _go(place) if is_typed(Headers(request.scope["headers"])) else _again(request, place)
        return _with_session(request, answer, sessions.new_value(time.time()), LIFETIME_SECONDS)

    @router.get("/sign-in")
    def show_form(request: Request) -> Response:
        return _go(HOME) if sessions_of(request) is None else _sign_in(request, "", HTTPStatus.OK)

    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        sessions = sessions_of(request)
        if sessions is None:
            return _go(HOME)
        form = parse_qs((await request.body()).decode("latin-1"), encoding="utf-8")
        token, page = (form.get(name, [""])[0] for name in ("token", "page"))
        if not sessions.is_token(token.strip().encode()):
            return _sign_in(request, page, cause=_CAUSES["token"])
        answer = _go(f"{HOME}{page_within(page)}")
        return _with_session(request, answer, sessions.new_value(time.time()), LIFETIME_SECONDS)

    @router.post("/sign-out")
    def sign_out(request: Request) -> Response:
        headers = Headers(request.scope["headers"])
        if (sessions := sessions_of(request)) is not None:
            sessions.sign_out(cookie_values(headers.get("cookie"), session_cookie(headers)), time.time())
        return _with_session(request, _go("sign-in"), "", 0)

    return router


def show_problem(request: Request, problem: Problem) -> Response:
    """Return the error page instead of the requested one.

    A browser that follows a link of another site does not send our cookie; the page that reloads itself is of our own
    site, and sends it.
    """
    if problem["status"] == HTTPStatus.UNAUTHORIZED and sessions_of(request) is not None:
        here = here_of(request)
        if is_own_site(Headers(request.scope["headers"])):
            return _sign_in(request, here)
        return _again(request, here or HOME)
    return render(request, "problem.html", HTTPStatus(problem["status"]), problem=problem)


def page_within(page: str) -> str:
    """Return a page's address relative to the root of all pages if it is one of ours, else that of the root."""
    return page if _PAGE.fullmatch(page) else ""


def is_typed(headers: Headers) -> bool:
    """Whether the browser declares that no other site led here; then new cookies are sent at once."""
    return bool(headers.get("sec-fetch-site")) and is_own_site(headers)


def _sign_in(request: Request, page: str, status: HTTPStatus = HTTPStatus.UNAUTHORIZED, *, cause: str = "") -> Response:
    values: dict[str, Any] = {"next_page": page_within(page), "cause": cause}
    return render(request, "sign_in.html", status, **values)


def _again(request: Request, page: str) -> Response:
    return render(request, "again.html", next_page=page)


def _go(place: str) -> Response:
    return RedirectResponse(place, HTTPStatus.SEE_OTHER, {"cache-control": "no-store"})


def _with_session(request: Request, answer: Response, value: str, seconds: int) -> Response:
    headers = Headers(request.scope["headers"])
    cookie = set_cookie(session_cookie(headers), value, seconds=seconds, secure=is_encrypted(request))
    answer.headers["set-cookie"] = cookie
    return answer


def is_encrypted(request: Request) -> bool:
    """Whether the browser uses https, to a proxy before us: the proxy or the browser reports it."""
    headers = Headers(request.scope["headers"])
    forwarded = headers.get("x-forwarded-proto").rpartition(",")[2].strip().lower()
    return "https" in (forwarded, request.url.scheme) or headers.get("origin").startswith("https://")
