"""Sources: where readings of a trial come from, one class for each kind of place.

Belongs here: what opens files, directories and connections, and hands on what it finds as readings.
Does not belong here: what a byte means (`parsers`), which readings count and when to stop (`collector`), where readings
go (`reporter`).
"""

from __future__ import annotations

from metrics_collector.sources.file_tail import CHUNK_BYTES, FileTail
from metrics_collector.sources.output import FileSource, Output
from metrics_collector.sources.source import Evidence, Position, Source, counted

__all__ = ["CHUNK_BYTES", "Evidence", "FileSource", "FileTail", "Output", "Position", "Source", "counted"]
