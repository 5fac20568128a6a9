"""A directory with event files of TensorBoard, read while programs write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from katib.model.metrics import MetricLog
from metrics_collector.explanation import nearest_name, quote
from metrics_collector.parsers.tags import TagRules
from metrics_collector.parsers.tf_events import EventParser
from metrics_collector.sources.event_files import EventFile, EventFileSearch, FileIdentity, FoundEventFile
from metrics_collector.sources.source import MetricSource, ReadPosition, counted

MAX_OPEN_FILES = 16
"""Files that grew last are kept open, so that a program may delete its files when it ends."""

SEARCH_SHARE = 0.003
"""Share of time for searching: a directory with a hundred thousand files is not listed five times a second."""

LONGEST_PAUSE_SECONDS = 30.0
"""Minimum pause between two searches."""

_TAGS_SHOWN = 5


class EventDirectory(MetricSource):
    """The source of kind TensorFlowEvent.

    Files may appear late, grow, be renamed, be truncated or be deleted. Readings of one file keep its order.

    Args:
        path: The directory; it may not exist yet.
        name: Name of the directory in metrics; matters for metrics with a leading part, such as `train/loss`.
    """

    def __init__(
        self, path: Path, names: Iterable[str], name: str = "", monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._name = (name or str(path)).rstrip("/")
        self._rules = TagRules(names)
        self._monotonic = monotonic
        self._search = EventFileSearch(path)
        self._next_search = float("-inf")
        self._files: dict[FileIdentity, EventFile] = {}
        self._open: dict[FileIdentity, EventFile] = {}  # in the order in which they grew
        self._lengths: dict[FileIdentity, int] = {}
        self._has_ended = False
        self._is_over = False

    # --- reading ------------------------------------------------------------------------------------------------------

    def poll(self) -> Iterator[list[MetricLog]]:
        """Yield new readings, file by file, in parts of bounded size."""
        has_ended, now = self._has_ended, self._monotonic()
        if has_ended or now >= self._next_search:
            self._look(self._search.run())
            after = self._monotonic()
            self._next_search = after + min((after - now) / SEARCH_SHARE, LONGEST_PAUSE_SECONDS)
        for identity, file in self._open.items():
            self._lengths[identity] = file.length()
        for identity, file in list(self._files.items()):
            if self._lengths[identity] != file.size:
                yield from filter(None, file.read(self._lengths[identity]))
                self._open.pop(identity, None)
                if file.is_open:
                    self._open[identity] = file
                while len(self._open) > MAX_OPEN_FILES:
                    self._open.pop(next(iter(self._open))).close()
        self._is_over = has_ended

    def end(self) -> None:
        self._has_ended = True

    @property
    def is_over(self) -> bool:
        """Whether a whole poll came after the end."""
        return self._is_over

    def finish(self) -> list[MetricLog]:
        """Return the readings that were held back."""
        self.end()
        readings = [] if self._is_over else [reading for part in self.poll() for reading in part]
        for file in self._files.values():
            readings += file.parser.finish()
        return readings

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _look(self, found: dict[FileIdentity, FoundEventFile]) -> None:
        """Register the existing files."""
        for identity, (path, length) in found.items():
            if identity not in self._files:
                self._files[identity] = EventFile(path, self._parser_maker(path))
            self._files[identity].path = path
            self._lengths[identity] = length

    def _parser_maker(self, path: str) -> Callable[[], EventParser]:
        below = self._below(path)
        directory = f"{self._name}/{below}" if below else self._name
        return lambda: EventParser(self._rules, directory)

    def _below(self, path: str) -> str:
        """Return the directory of a file, relative to the first one; empty for the first one."""
        below = Path(path).parent.relative_to(self._path).as_posix()
        return "" if below == "." else below

    # --- explanations -------------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        """A read error, or a note that damaged data was skipped."""
        files = next((file.problem for file in self._files.values() if file.problem), "")
        return self._search.problem or files or (self.damage and f"event files: {self.damage}")

    @property
    def position(self) -> ReadPosition | None:
        """How far the files have been read, together; None if there are none."""
        if not self._files:
            return None
        device, inode = next(iter(self._files))
        size = sum(file.size for file in self._files.values())
        beginnings = sum(file.beginnings - 1 for file in self._files.values()) + 1
        return ReadPosition(device, inode, size, sum(self._lengths.values()), beginnings, len(self._files) == 1)

    @property
    def damage(self) -> str:
        """The skipped damage, as a sentence without an end; empty if there was none."""
        places = sum(file.parser.notes.damages for file in self._files.values())
        records = sum(file.parser.undecodable for file in self._files.values())
        skipped = f"{counted(places, 'damaged place')} skipped" * bool(places)
        return "; ".join(filter(None, (skipped, f"{counted(records, 'record')} held no event" * bool(records))))

    @property
    def notes(self) -> str:
        """The valid data that was not read, as a sentence without an end; empty if there was none."""
        long = sum(file.parser.notes.long_records for file in self._files.values())
        cut = sum(file.parser.notes.missing_bytes > 0 for file in self._files.values())
        too_long = f"{counted(long, 'record')} too long to be read" * bool(long)
        return "; ".join(filter(None, (too_long, f"{counted(cut, 'file')} ended within a record" * bool(cut))))

    @property
    def is_empty(self) -> bool:
        """Whether there is no event file."""
        return not self._files

    def seen(self) -> str:
        """Return the numbers of files and tags."""
        where = f"below {self._name}"
        if not self._files:
            others = self._search.other_files
            return f"no event file {where}" + (f", only {counted(others, 'other file')}" if others else "")
        return f"{counted(len(self._tags()), 'scalar tag')} in {counted(len(self._files), 'event file')} {where}"

    def hint(self, metric: str) -> str:
        """Return the tag most similar to the metric, or the available ones, and the data that was not read."""
        notes, tags = f"; {self.notes}" if self.notes else "", self._tags()
        if nearest := nearest_name(metric, tags):
            return f"{notes}; nearest: {quote(nearest)}" + (f" in {tags[nearest]}" if tags[nearest] else "")
        return f"{notes}; tags: {', '.join(map(quote, islice(tags, _TAGS_SHOWN)))}" if tags else notes

    def _tags(self) -> dict[str, str]:
        """Return the tags of scalars, each with the relative directory in which it was found first."""
        tags: dict[str, str] = {}
        for file in self._files.values():
            below = self._below(file.path)
            for tag in file.parser.tags:
                tags.setdefault(tag.decode(errors="replace"), below)
        return tags
