"""Parsers: bytes in, in chunks of any size; readings out. No I/O, no clock, bounded memory.

A parser never fails on its input: a program may print anything. Unusable input is counted in its `ParserNotes`.
Readings do not depend on the boundaries of the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

from metrics_collector.parsers.lines import MAX_LINE_BYTES, LineParser, ParserNotes
from metrics_collector.parsers.text import TextParser


def parser_for(file_format: str, names: Sequence[str], filters: Sequence[str] = ()) -> LineParser:
    """Return the parser of a `fileSystemPath.format`; an empty format is TEXT.

    Raises:
        InvalidError: The format is unknown, or a filter is not an RE2 pattern with two groups.
    """
    if file_format == "JSON":
        from metrics_collector.parsers.json_lines import JsonParser

        return JsonParser(names)
    return TextParser(names, filters, file_format=file_format)
