"""Sources of a trial's readings, one class for each kind.

Belongs here: code that opens files, directories and connections, and returns readings from them.
Does not belong here: the meaning of bytes (`parsers`), filtering and stopping (`collector`), storage of readings
(`reporter`).
"""

from __future__ import annotations

from metrics_collector.sources.output import FileSource, ProgramOutput
from metrics_collector.sources.source import MetricSource, ReadPosition, SourceEvidence, counted
