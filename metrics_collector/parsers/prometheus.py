"""Prometheus: the samples of one scrape, in the text format or as OpenMetrics. No I/O.

A metric is the name of a sample, with labels if one name has several samples: `loss{split="val"}` is the sample `loss`
whose label `split` is `val`, whatever other labels it has. A metric that several samples match has no reading: it is
ambiguous. The name of a counter may omit its `_total`.

A sample with a timestamp is a reading if its timestamp is new. A sample without one is a reading if its value differs
from that of the previous scrape: it is unchanged until the program sets it again. So a program that sets the same value
twice creates one reading.

Source: the formats as `prometheus_client` reads them,
https://prometheus.io/docs/instrumenting/exposition_formats/ and OpenMetrics 1.0.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from katib.model.metrics import ZERO_TIME, MetricLog

MAX_LINE_BYTES = 64 << 10
"""Longer lines are skipped; the reader of the formats scans them character by character."""

_HINT_BYTES = 64 << 10
"""Samples kept of the last scrape for an explanation."""

_SERIES = re.compile(rb'^([^#\s{][^\s{]*|\{"[^"\n]*")', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _SampleSelector:
    name: str
    labels: Mapping[str, str]

    def selects(self, sample: Any, *, is_counter: bool) -> bool:
        is_named = sample.name == self.name or (is_counter and sample.name == f"{self.name}_total")
        return is_named and self.labels.items() <= sample.labels.items()


class PrometheusParser:
    """Finds readings in successive scrapes. Not thread-safe.

    Args:
        names: The metrics, in the order in which one scrape reports them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._selectors = {name: _selector(name) for name in names}
        self._words = tuple({selector.name.removesuffix("_total").encode() for selector in self._selectors.values()})
        self._last: dict[str, tuple[str, datetime]] = {}
        self._several: dict[str, list[str]] = {}
        self._head = b""
        self._lines_before: list[bytes] = []  # of the last readable scrape; equal ones contain nothing new

    def read(self, body: bytes, content_type: str) -> list[MetricLog]:
        """Return the new readings of a scrape. Readings without timestamp have ZERO_TIME.

        Raises:
            ValueError: The lines of a metric do not have the format of the content type.
        """
        self._head = body[:_HINT_BYTES]
        lines = list(self._lines(body))
        if lines == self._lines_before:
            return []
        self._lines_before = []
        is_open = content_type.partition(";")[0].strip().lower() == "application/openmetrics-text"
        found: dict[str, list[Any]] = {name: [] for name in self._selectors}
        for sample, is_counter in _samples(lines, is_open=is_open):
            for name, selector in self._selectors.items():
                if selector.selects(sample, is_counter=is_counter):
                    found[name].append(sample)
        self._lines_before = lines
        readings = (self._reading(name, samples) for name, samples in found.items())
        return [reading for reading in readings if reading is not None]

    def hint(self, metric: str) -> str:
        """Return the reason why a metric was not found, starting with `; `; empty if the last scrape gives none."""
        if several := self._several.get(metric):
            return f"; {len(several)} samples match, choose one by its labels: {' or '.join(several[:2])}"
        names = [name.decode(errors="replace").lstrip('{"') for name in dict.fromkeys(_SERIES.findall(self._head))]
        wanted = self._selectors[metric].name if metric in self._selectors else metric
        near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.45) or names[:1]
        return f"; nearest: {near[0]}" if near else ""

    def _lines(self, body: bytes) -> Iterator[bytes]:
        """Yield the lines that may concern a metric."""
        for line in body.split(b"\n"):
            if len(line) <= MAX_LINE_BYTES and any(word in line for word in self._words):
                yield line

    def _reading(self, name: str, samples: list[Any]) -> MetricLog | None:
        self._several.pop(name, None)
        if len(samples) != 1:
            if samples:
                self._several[name] = [_spelled(sample) for sample in samples]
            return None
        sample = samples[0]
        state = (repr(float(sample.value)), _time_of(sample.timestamp))
        before = self._last.get(name)
        self._last[name] = state
        value, time = state
        if before is not None and (before[1] == time if time is not ZERO_TIME else before == state):
            return None
        return MetricLog(time, name, value)


def _samples(lines: Iterable[bytes], *, is_open: bool) -> Iterator[tuple[Any, bool]]:
    """Yield samples, and whether they are of a counter."""
    # Imported late: it takes longer than everything else here, and few trials need it.
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
    from prometheus_client.parser import text_string_to_metric_families as text_families

    text = b"\n".join([*lines, b"# EOF" if is_open else b""]).decode(errors="replace")
    try:
        for family in (open_families if is_open else text_families)(text + "\n"):
            for sample in family.samples:
                yield sample, family.type == "counter"
    except Exception as error:  # it raises errors of any kind, KeyError and IndexError too
        raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from error


def _selector(metric: str) -> _SampleSelector:
    try:
        (sample, _), *_ = _samples([f"{metric} 0".encode()], is_open=False)
    except ValueError:
        return _SampleSelector(metric, {})
    return _SampleSelector(sample.name, sample.labels)


def _spelled(sample: Any) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
    return f"{sample.name}{{{labels}}}" if labels else sample.name


def _time_of(stamp: Any) -> datetime:
    if stamp is None:
        return ZERO_TIME
    try:
        return datetime.fromtimestamp(float(stamp), UTC)
    except (ValueError, OverflowError, OSError):
        return ZERO_TIME
