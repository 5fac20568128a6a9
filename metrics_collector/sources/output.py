"""Output of a program: lines, from a pipe or from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from katib.model.metrics import MetricLog
from metrics_collector.explanation import OutputSample, nearest, quote
from metrics_collector.parsers import LineParser
from metrics_collector.sources.source import MetricSource, ReadPosition, SourceEvidence, counted

if TYPE_CHECKING:
    from metrics_collector.sources.file_tail import FileTail


class ProgramOutput(SourceEvidence):
    """Converts bytes to readings and keeps a sample of them. `feed` adds bytes; `FileSource` reads them from a file.

    Args:
        name: Name of the output in explanations, such as the path of a file; empty: just output.
    """

    def __init__(self, parser: LineParser, name: str = "") -> None:
        self._parser = parser
        self._where = f" in {name}" if name else ""
        self._sample: OutputSample | None = OutputSample()

    def feed(self, data: bytes) -> list[MetricLog]:
        """Add a chunk of any size, and return the readings that it completes."""
        if self._sample is not None:
            self._sample.add(data)
        return self._parser.feed(data)

    def finish(self) -> list[MetricLog]:
        return self._parser.finish()

    @property
    def is_empty(self) -> bool:
        return not self._parser.notes.size_bytes

    def seen(self) -> str:
        what = "no output" if self.is_empty else counted(self._parser.notes.lines, "line")
        return what + self._where

    def hint(self, metric: str) -> str:
        """Return the line most similar to the metric, and the unreadable parts."""
        notes = self._parser.notes
        lines = self._sample.lines() if self._sample is not None else []
        broken = f"; {counted(notes.broken_lines, 'line')} that named a metric held no JSON object" * bool(
            notes.broken_lines
        )
        cut = f"; {counted(notes.long_lines, 'line')} too long to be read whole" * bool(notes.long_lines)
        if candidate := nearest(metric, lines):
            return f"{broken}{cut}; nearest: {quote(candidate)}"
        return f"{broken}{cut}; last line: {quote(lines[-1])}" if lines else f"{broken}{cut}"

    def refused(self, metric: str) -> str:
        """Return the values of the metric that are not plain numbers."""
        notes = self._parser.notes
        if longer := notes.ambiguous.get(metric):
            return f"{quote(metric)} may be {' or '.join(map(quote, longer))}, which are printed"
        count, line = notes.refused.get(metric, (0, ""))
        return f"{counted(count, 'value')} of {quote(metric)} not taken, the first in {quote(line)}" * bool(count)

    def remedies(self, metric: str) -> list[str]:
        """Return changes that would make the metric readable."""
        from metrics_collector.remedies import remedies  # needed only for a missing metric

        return remedies(metric, self._parser, self._sample.lines() if self._sample is not None else [])

    def drop(self) -> None:
        self._sample = None


class FileSource(ProgramOutput, MetricSource):
    """Output in a file.

    Args:
        on_data: Called with every chunk before its readings are returned.
    """

    def __init__(
        self, tail: FileTail, parser: LineParser, name: str = "", on_data: Callable[[bytes], None] | None = None
    ) -> None:
        super().__init__(parser, name)
        self._tail = tail
        self._on_data = on_data

    @property
    def problem(self) -> str:
        """The reason why the file cannot be read."""
        return f"the file {self._tail.problem}" if self._tail.problem else ""

    @property
    def position(self) -> ReadPosition | None:
        position = self._tail.position
        if position is None:
            return None
        status, size = position
        return ReadPosition(status.st_dev, status.st_ino, size, status.st_size, self._tail.beginnings)

    def poll(self) -> Iterator[list[MetricLog]]:
        """Yield the readings of the new part of the file, chunk by chunk."""
        for chunk in self._tail.poll():
            if self._on_data is not None:
                self._on_data(chunk)
            yield self.feed(chunk)

    @property
    def is_over(self) -> bool:
        return True

    def close(self) -> None:
        self._tail.close()
