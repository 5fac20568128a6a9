"""Scripts, styles and Plotly: sent compressed, and cached by browsers until they change.

Every address holds a digest of all files, so a browser may cache a file for a year and never has an old one.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response

from katib.errors import NotFoundError
from katib.model.version import __version__

PLOTLY = "plotly.js"
_YEAR_SECONDS = 31_536_000
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Asset:
    """A file in its sent form."""

    media_type: str
    body: bytes
    compressed: bytes


def asset_routes() -> APIRouter:
    """Return the route of all files."""
    router = APIRouter()

    @router.get("/static/{version}/{name}")
    def send(request: Request, version: str, name: str) -> Response:
        if version != assets_version() or name not in _sources():
            raise NotFoundError(f"there is no file static/{version}/{name}; load the page again")
        asset = read_asset(name)
        zipped = "gzip" in request.headers.get("accept-encoding", "")
        headers = {
            "cache-control": f"public, max-age={_YEAR_SECONDS}, immutable",
            "vary": "accept-encoding",
            "x-content-type-options": "nosniff",
        }
        if zipped:
            headers["content-encoding"] = "gzip"
        return Response(asset.compressed if zipped else asset.body, media_type=asset.media_type, headers=headers)

    return router


@cache
def assets_version() -> str:
    """Return a digest of all files: it changes when any of them does."""
    digest = hashlib.sha256(__version__.encode())
    for name, source in sorted(_sources().items()):
        digest.update(name.encode())
        digest.update(str(_plotly_version()).encode() if name == PLOTLY else source.read_bytes())
    return digest.hexdigest()[:_DIGITS]


@cache
def read_asset(name: str) -> Asset:
    """Return a file, compressed once. Plotly takes about a third of a second."""
    body = _sources()[name].read_bytes()
    return Asset(_TYPES[name.rpartition(".")[2]], body, gzip.compress(body, 9, mtime=0))


@cache
def _sources() -> dict[str, Traversable]:
    own = {file.name: file for file in files("katib.doors.ui").joinpath("static").iterdir() if file.is_file()}
    return {**own, PLOTLY: files("plotly").joinpath("package_data", "plotly.min.js")}


def _plotly_version() -> str:
    from importlib.metadata import version

    return version("plotly")
