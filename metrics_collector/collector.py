"""The collector of one trial: output in, readings out, a verdict of the early stopping rules, and an explanation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from katib.api.metrics import ZERO_TIME, MetricLog, is_usable, parse_value
from katib.api.types import EarlyStoppingRule, MetricsCollectorSpec, ObjectiveSpec
from metrics_collector.early_stopping import RuleBook
from metrics_collector.explanation import OutputSample, nearest, quote
from metrics_collector.parsers import Parser, parser_for


@dataclass(slots=True)
class _Tally:
    """What became of one metric, counted until every metric had a usable reading."""

    readings: int = 0
    numbers: int = 0
    usable: bool = False
    last: str = ""

    def add(self, value: str) -> None:
        self.readings += 1
        self.last = value
        if not self.usable:
            self.usable = is_usable(value)
            self.numbers += parse_value(value) is not None


class Collector:
    """Follows the output of one trial. Not thread-safe; does no I/O.

    Args:
        objective: Name of the objective metric.
        metrics: Names of the additional metrics.
        parser: Made for all of these, and for the metrics of the rules.
        rules: Early stopping rules of the trial.
        objective_type: `minimize` or `maximize`.
        clock: Returns the time to stamp readings with that carry none; without it they keep ZERO_TIME.
        source: What to call the output in an explanation when there was none, such as the path of a file.
    """

    def __init__(
        self,
        objective: str,
        metrics: Sequence[str],
        parser: Parser,
        rules: Sequence[EarlyStoppingRule] = (),
        objective_type: str = "",
        clock: Callable[[], datetime] | None = None,
        source: str = "",
    ) -> None:
        self._objective = objective
        self._tallies = {name: _Tally() for name in (objective, *metrics)}
        self._parser = parser
        self._rules = RuleBook(rules, objective, objective_type)
        self._clock = clock
        self._source = source
        self._sample: OutputSample | None = OutputSample()

    def feed(self, data: bytes) -> list[MetricLog]:
        """Take a chunk of output, in any cut, and return the readings that it completes."""
        if self._sample is not None:
            self._sample.add(data)
        return self._take(self._parser.feed(data))

    def finish(self) -> list[MetricLog]:
        """Say that no more output comes; return the readings of a last line without line end."""
        return self._take(self._parser.finish())

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early; empty while it may go on."""
        return self._rules.verdict

    def explanation(self) -> str:
        """Return one sentence on why the objective metric has no usable reading; empty when it has one."""
        tally = self._tallies[self._objective]
        if tally.usable:
            return ""
        if tally.readings:
            kind = "only as NaN or infinity" if tally.numbers == tally.readings else "never as a finite number"
            times = _count(tally.readings, "time")
            return f"{self._seen()}, {quote(self._objective)} read {times}, {kind}; last value: {quote(tally.last)}"
        if not self._parser.notes.size_bytes:
            return f"no output{self._where()}; looked for {quote(self._objective)}"
        return f"{self._seen()}, none matched {quote(self._objective)}{self._others()}{self._hint(self._objective)}"

    def missing_metrics(self) -> str:
        """Return one sentence on additional metrics without any reading; empty when all were found."""
        missing = [name for name, tally in self._tallies.items() if not tally.readings and name != self._objective]
        if not missing:
            return ""
        return f"{self._seen()}, none matched {', '.join(map(quote, missing))}{self._hint(missing[0])}"

    def _take(self, readings: list[MetricLog]) -> list[MetricLog]:
        if not readings:
            return readings
        if self._clock is not None:
            readings = _stamped(readings, self._clock())
        if self._sample is not None:
            self._tally(readings)
        if watched := self._rules.metrics:
            for reading in readings:
                if reading.name in watched:
                    self._rules.observe(reading)
        return [reading for reading in readings if reading.name in self._tallies]

    def _tally(self, readings: list[MetricLog]) -> None:
        for reading in readings:
            if reading.name in self._tallies:
                self._tallies[reading.name].add(reading.value)
        if all(tally.usable for tally in self._tallies.values()):
            self._sample = None  # nothing is left to be explained

    def _seen(self) -> str:
        return f"{_count(self._parser.notes.lines, 'line')}{self._where()}"

    def _where(self) -> str:
        return f" in {self._source}" if self._source else ""

    def _others(self) -> str:
        found = [f"{quote(name)} read {_count(t.readings, 'time')}" for name, t in self._tallies.items() if t.readings]
        return f" ({', '.join(found)})" if found else ""

    def _hint(self, metric: str) -> str:
        notes = self._parser.notes
        lines = self._sample.lines() if self._sample is not None else []
        broken = f"; {_count(notes.broken_lines, 'line')} that named a metric held no JSON object" * bool(
            notes.broken_lines
        )
        cut = f"; {_count(notes.long_lines, 'line')} too long to be read whole" * bool(notes.long_lines)
        if candidate := nearest(metric, lines):
            return f"{broken}{cut}; nearest: {quote(candidate)}"
        return f"{broken}{cut}; last line: {quote(lines[-1])}" if lines else f"{broken}{cut}"


def collector_for(
    objective: ObjectiveSpec,
    spec: MetricsCollectorSpec,
    rules: Sequence[EarlyStoppingRule] = (),
    clock: Callable[[], datetime] | None = None,
    source: str = "",
) -> Collector:
    """Return the collector that a trial's StdOut or File collector asks for.

    Raises:
        InvalidError: The format is unknown, or a filter is no RE2 pattern with two groups.
    """
    origin = spec.source
    file_format = origin.file_system_path.format if origin and origin.file_system_path else ""
    filters = origin.filter.metrics_format if origin and origin.filter else ()
    names = list(dict.fromkeys([*objective.metric_names, *(rule.name for rule in rules)]))
    parser = parser_for(file_format, names, filters)
    additional = objective.additional_metric_names
    return Collector(objective.objective_metric_name, additional, parser, rules, objective.type, clock, source)


def _stamped(readings: list[MetricLog], now: datetime) -> list[MetricLog]:
    return [
        MetricLog(now, reading.name, reading.value) if reading.time is ZERO_TIME else reading for reading in readings
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
