"""Rendering of templates to pages, with headers that isolate them."""

from __future__ import annotations

import re
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from katib.doors.rest.guard import is_signed_in
from katib.doors.rest.visits import UI_PREFIX
from katib.doors.ui.assets import assets_version
from katib.doors.ui.numbers import shown_number
from katib.doors.ui.views import progress_parts, progress_words
from katib.model.version import __version__
from katib.service.tuning.reading import short

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'self'; frame-ancestors 'self'"
)
"""Scripts only from this server and none in a page: names and output of trials cannot run. Plotly sets styles of
elements, which needs 'unsafe-inline' for styles. A dashboard of the same origin may show the page in a frame."""

_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # without any, browsers send forms with the Origin "null"
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def render(request: Request, template: str, status: HTTPStatus = HTTPStatus.OK, /, **values: Any) -> HTMLResponse:
    """Return a page.

    Args:
        request: Determines the depth of the page below the root of all pages: links are relative, so that they are
            valid under any path of a gateway.
        template: File in the folder `templates`.
        status: Status of the answer.
        values: Values of the template.
    """
    shared = {
        "root": _root_from(_path_of(request)),
        "here": here_of(request),
        "signed_in": is_signed_in(request.scope),
        "assets": f"static/{assets_version()}",
        "version": __version__,
        "page": template.removesuffix(".html"),
    }
    text = _templates().get_template(template).render({**shared, **values})
    return HTMLResponse(text, status, HEADERS)


def fragment(template: str, **values: Any) -> str:
    """Return a part of a page that is independent of the request."""
    return _templates().get_template(template).render(values)


def visible(text: str) -> str:
    r"""Return output of a program with escapes for marks that change the direction of text: `\u202e`.

    A browser that obeys them shows a misleading line.
    """
    return _TURNS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def here_of(request: Request) -> str:
    """Return the address of the requested page, relative to the root of all pages."""
    path = _path_of(request)
    if not path.startswith(f"{UI_PREFIX}/"):
        return ""
    here = path.removeprefix(f"{UI_PREFIX}/")
    return f"{here}?{request.url.query}" if request.url.query else here


def _path_of(request: Request) -> str:
    return request.url.path.removeprefix(request.scope.get("root_path", ""))


def _root_from(path: str) -> str:
    """Return the path from a page to the root of all pages, also for the few addresses outside of it."""
    above = "../" * (path.count("/") - UI_PREFIX.count("/") - 1)
    return above or "./" if path.startswith(f"{UI_PREFIX}/") else f"{'../' * (path.count('/') - 1)}{UI_PREFIX[1:]}/"


def _markdown(text: str) -> Markup:
    from katib.doors.ui.markdown import markdown  # few pages have notes

    return markdown(text)


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("katib.doors.ui"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "short": short,
        "four": shown_number,
        "parts": progress_parts,
        "words": progress_words,
        "visible": visible,
        "markdown": _markdown,
    }
    return made
