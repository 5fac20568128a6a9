"""Files that a trial left in its folder, as the page of the trial shows them: images, tables, texts, downloads."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote

from katib.errors import KatibError
from katib.model.wording import size_text
from katib.service.tuning.service import TrialFile, TuningService

MOST_SHOWN = 24
"""Files that are shown; of the others there are links."""
_MOST_ROWS, _MOST_COLUMNS, _MOST_LINES = 12, 12, 15
_LONGEST_CELL = 60
_READ_BYTES = 16_000
"""Of a table or a text, so that a page of many files stays small."""
_IMAGES = frozenset((".gif", ".jpeg", ".jpg", ".png", ".svg", ".webp"))
_TABLES = {".csv": ",", ".tsv": "\t"}
_TEXTS = frozenset((".json", ".log", ".md", ".txt", ".yaml", ".yml"))

Look = Literal["image", "table", "text", "link"]


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file as a page shows it.

    Attributes:
        path: Below the trial's folder.
        size: In words.
        address: Of its content, relative to the root of all pages.
        look: How it is shown.
        rows: The first rows of a table, the first one with the names of its columns.
        text: The first lines of a text.
        is_cut: Whether there is more of the table or text.
    """

    path: str
    size: str
    address: str
    look: Look
    rows: Sequence[Sequence[str]] = ()
    text: str = ""
    is_cut: bool = False


def shown_files(service: TuningService, namespace: str, trial: str) -> Sequence[ShownFile]:
    """Return the files of a trial: images first, then tables, texts and links, each by path."""
    found = sorted(service.files(namespace, trial), key=lambda file: (_ORDER.index(_look_of(file)), file.path))
    return [_shown(service, namespace, trial, file, as_link=i >= MOST_SHOWN) for i, file in enumerate(found)]


_ORDER: Sequence[Look] = ("image", "table", "text", "link")


def _look_of(file: TrialFile) -> Look:
    end = PurePosixPath(file.path).suffix.lower()
    if not file.size:
        return "link"
    return "image" if end in _IMAGES else "table" if end in _TABLES else "text" if end in _TEXTS else "link"


def _shown(service: TuningService, namespace: str, trial: str, file: TrialFile, *, as_link: bool) -> ShownFile:
    look = "link" if as_link else _look_of(file)
    address = f"api/v1/namespaces/{namespace}/trials/{trial}/file?path={quote(file.path, safe='')}"
    size = size_text(file.size)
    if look not in {"table", "text"}:
        return ShownFile(file.path, size, address, look)
    try:
        data = next(service.file(namespace, trial, file.path), b"")[:_READ_BYTES]
    except KatibError:  # removed just now
        return ShownFile(file.path, size, address, "link")
    lines = data.decode(errors="replace").splitlines()
    lines = lines[:-1] if len(data) < file.size and len(lines) > 1 else lines  # the last one is cut off
    if look == "text":
        return ShownFile(file.path, size, address, look, (), "\n".join(lines[:_MOST_LINES]), len(lines) > _MOST_LINES)
    table = csv.reader(io.StringIO("\n".join(lines)), delimiter=_TABLES[PurePosixPath(file.path).suffix.lower()])
    try:
        read = [[cell[:_LONGEST_CELL] for cell in row[:_MOST_COLUMNS]] for row in islice(table, _MOST_ROWS + 2) if row]
    except csv.Error:
        return ShownFile(file.path, size, address, "link")
    rows = read[: _MOST_ROWS + 1]
    return ShownFile(file.path, size, address, look, rows, "", len(read) > len(rows) or len(data) < file.size)
