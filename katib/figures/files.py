"""One figure as a file: an image, or Plotly's JSON."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from katib.errors import InvalidError, TerminalError, invalid
from katib.model.files.whole_files import write_named

if TYPE_CHECKING:
    import plotly.graph_objects as go

IMAGES = ("png", "svg", "pdf")
FORMS = ("html", *IMAGES, "json")
"""Suffixes of supported files."""

_WIDTH, _HEIGHT, _SCALE = 1000, 560, 2
_NOISY_LOGGERS = ("kaleido", "choreographer", "logistro")
_BROWSER = "install Chromium (`apt-get install chromium`), or set BROWSER_PATH to one; an .html file needs none"


def form_of(path: Path, forms: Sequence[str] = FORMS) -> str:
    """Return the format of a file, by its suffix.

    Raises:
        InvalidError: The suffix is not supported, or the directory is missing.
    """
    check_place(path)
    form = path.suffix.lower().removeprefix(".")
    if form not in forms:
        cause = f'"{path.suffix}" is not a form that can be written'
        if not form:
            cause = "the name has no suffix, so the form is not known"
        remedy = f"end the name with {', '.join(f'.{form}' for form in forms[:-1])} or .{forms[-1]}"
        raise invalid(str(path), cause, remedy, "figure-file-suffix")
    return form


def check_place(path: Path) -> None:
    """Check that a file can have this path.

    Raises:
        InvalidError: The path is a directory, or its directory is missing.
    """
    if path.is_dir() or not path.parent.is_dir():
        cause = "it is a directory" if path.is_dir() else f"there is no directory {path.parent}"
        raise invalid(str(path), cause, "name a file in a directory that exists", "figure-file-directory")


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: a full disk keeps the earlier one.

    Raises:
        InvalidError: The file cannot be written.
    """
    try:
        write_named(path, content)
    except OSError as error:
        cause = f"it cannot be written: {(error.strerror or str(error)).lower()}"
        raise invalid(str(path), cause, "choose another file with -o", "figure-file-unwritable") from error


def figure_bytes(figure: go.Figure, form: str) -> bytes:
    """Convert a figure to an image or to JSON.

    Images are drawn by the Chromium of the system, without network access.

    Args:
        form: `json` or one of IMAGES.

    Raises:
        InvalidError: The package kaleido or a browser is not installed.
        TerminalError: The browser failed.
    """
    if form == "json":
        return f"{figure.to_json()}\n".encode()
    try:
        import kaleido
        from choreographer.errors import BrowserFailedError, ChromeNotFoundError
    except ModuleNotFoundError as error:
        raise _missing(
            form, f"needs the package {error.name}, which is not installed", "pip install 'katib[files]'"
        ) from error
    for name in _NOISY_LOGGERS:  # they log a browser's messages; failures are raised
        logging.getLogger(name).setLevel(logging.CRITICAL)
    size = {"width": figure.layout.width or _WIDTH, "height": figure.layout.height or _HEIGHT, "scale": _SCALE}
    try:
        content: bytes = kaleido.calc_fig_sync(
            figure.to_dict(), opts={"format": form, **size}, kopts={"mathjax": False}
        )
    except ChromeNotFoundError as error:
        raise _missing(form, "needs a Chromium, and none is installed", _BROWSER) from error
    except (BrowserFailedError, TimeoutError, OSError, RuntimeError) as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise TerminalError(f"the {form.upper()} file could not be drawn by Chromium: {cause}; {_BROWSER}") from error
    return content


def _missing(form: str, cause: str, remedy: str) -> InvalidError:
    return invalid(f".{form}", f"a {form.upper()} file {cause}", remedy, "image-unavailable")
