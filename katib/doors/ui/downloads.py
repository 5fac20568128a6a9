"""Trials as files: CSV, JSON and Parquet, created and sent in parts.

Numbers are numbers with every digit, times are in ISO 8601 (UTC), durations are seconds; absent values are empty, null
in JSON.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from typing import Any

from katib.doors.ui.trial_columns import ColumnKind, TableColumn, exact, iso_time, numbers_of
from katib.errors import invalid
from katib.figures.trials import Rows, TrialTable

_PART_ROWS = 2_000
_PARQUET_ROWS = 20_000


class DownloadFormat(StrEnum):
    """The format of a file."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


MEDIA_TYPES = {
    DownloadFormat.CSV: "text/csv; charset=utf-8",
    DownloadFormat.JSON: "application/json",
    DownloadFormat.PARQUET: "application/vnd.apache.parquet",
}


def write_trials(
    form: DownloadFormat, table: TrialTable, columns: Sequence[TableColumn], rows: Rows
) -> Iterator[bytes]:
    """Return the parts of a file of some trials.

    Raises:
        InvalidError: The format needs a package that is not installed.
    """
    if form is DownloadFormat.PARQUET and find_spec("pyarrow") is None:
        remedy = "install katib[files] where this program runs, or take csv or json"
        raise invalid("format", "parquet takes the package pyarrow, which is not installed", remedy, "download-parquet")
    return _WRITERS[form](table, columns, rows)


def values_of(table: TrialTable, column: TableColumn, rows: Rows) -> list[Any]:
    """Return values for JSON, in which infinities are texts."""
    if column.kind is ColumnKind.TEXT:
        return list(table.names[rows])
    numbers = numbers_of(table, column)[rows].tolist()
    if column.kind is ColumnKind.CHOICE:
        return [_choice(column, value) for value in numbers]
    if column.kind is ColumnKind.TIME:
        return [iso_time(value) or None for value in numbers]
    return [_json_number(value) for value in numbers]


def _write_csv(table: TrialTable, columns: Sequence[TableColumn], rows: Rows) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.key for column in columns])
    for part in _parts(rows, _PART_ROWS):
        writer.writerows(zip(*(_texts(table, column, part) for column in columns), strict=True))
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()


def _write_json(table: TrialTable, columns: Sequence[TableColumn], rows: Rows) -> Iterator[bytes]:
    keys, before = [column.key for column in columns], "[\n"
    for part in _parts(rows, _PART_ROWS):
        cells = zip(*(values_of(table, column, part) for column in columns), strict=True)
        yield (before + ",\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in cells)).encode()
        before = ",\n"
    yield b"[]\n" if not len(rows) else b"\n]\n"


def _write_parquet(table: TrialTable, columns: Sequence[TableColumn], rows: Rows) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        ColumnKind.TEXT: pa.string(),
        ColumnKind.CHOICE: pa.string(),
        ColumnKind.NUMBER: pa.float64(),
        ColumnKind.DURATION: pa.float64(),
        ColumnKind.TIME: pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([(column.key, pa.int64() if column.whole else types[column.kind]) for column in columns])
    sink = _Sink()
    with parquet.ParquetWriter(pa.PythonFile(sink, "w"), schema) as writer:
        for part in _parts(rows, _PARQUET_ROWS):
            arrays = [
                pa.array(_parquet_values(table, column, part), field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.table(arrays, schema=schema))
            yield sink.taken()
    yield sink.taken()


_Write = Callable[[TrialTable, Sequence[TableColumn], Rows], Iterator[bytes]]
_WRITERS: dict[DownloadFormat, _Write] = {
    DownloadFormat.CSV: _write_csv,
    DownloadFormat.JSON: _write_json,
    DownloadFormat.PARQUET: _write_parquet,
}


@dataclass(slots=True)
class _Sink:
    """A write-only file, read while it is written."""

    parts: list[bytes] = field(default_factory=list)
    place: int = 0
    closed: bool = False

    def write(self, data: Any) -> int:
        part = bytes(data)
        self.parts.append(part)
        self.place += len(part)
        return len(part)

    def tell(self) -> int:
        return self.place

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        """Return the data written since the last call."""
        found = b"".join(self.parts)
        self.parts.clear()
        return found


def _parts(rows: Rows, size: int) -> Iterator[Rows]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _texts(table: TrialTable, column: TableColumn, rows: Rows) -> list[str]:
    if column.kind is ColumnKind.TEXT:
        return list(table.names[rows])
    numbers = numbers_of(table, column)[rows].tolist()
    if column.kind is ColumnKind.CHOICE:
        return [_choice(column, value) or "" for value in numbers]
    return (
        [iso_time(value) for value in numbers]
        if column.kind is ColumnKind.TIME
        else [exact(value) for value in numbers]
    )


def _parquet_values(table: TrialTable, column: TableColumn, rows: Rows) -> list[Any]:
    if column.kind in (ColumnKind.TEXT, ColumnKind.CHOICE):
        return values_of(table, column, rows)
    numbers = numbers_of(table, column)[rows].tolist()
    if column.kind is ColumnKind.TIME:
        return [None if math.isnan(value) else round(value * 1e6) for value in numbers]
    return [None if math.isnan(value) else int(value) if column.whole else value for value in numbers]


def _choice(column: TableColumn, value: float) -> str | None:
    return None if math.isnan(value) else column.choices[int(value)]


def _json_number(value: float) -> float | int | str | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return exact(value)
    return int(value) if value.is_integer() else value
