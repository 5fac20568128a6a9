"""The collector of one trial: filters and stamps readings, evaluates rules, and explains missing metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from katib.model.metrics import ZERO_TIME, MetricLog, is_usable, parse_value
from katib.model.names import REMEDY
from katib.model.types import UNAVAILABLE, EarlyStoppingRule, ObjectiveSpec, TrialSpec
from metrics_collector.explanation import quote
from metrics_collector.parsers import LineParser, parser_for
from metrics_collector.sources import SourceEvidence, counted

if TYPE_CHECKING:
    from metrics_collector.early_stopping import RuleBook

_TICK = timedelta(microseconds=1)
"""The smallest step of the observation log's clock."""


@dataclass(slots=True)
class _ReadingCounts:
    """Counts of one metric's readings, until every metric had a usable one."""

    readings: int = 0
    numbers: int = 0
    usable: bool = False
    last: str = ""


class Collector:
    """Processes the readings of one trial. Not thread-safe; does no I/O.

    Attributes:
        verdict: The reason to stop the trial early; empty while it may continue.

    Args:
        objective_type: `minimize` or `maximize`.
        clock: Returns increasing times for readings without one; without a clock they keep ZERO_TIME.
    """

    def __init__(
        self,
        objective: str,
        metrics: Sequence[str],
        evidence: SourceEvidence,
        rules: Sequence[EarlyStoppingRule] = (),
        objective_type: str = "",
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._objective = objective
        self._counts = {name: _ReadingCounts() for name in (objective, *metrics)}
        self.verdict = ""
        self._evidence = evidence
        self._rules: RuleBook | None = None
        if rules:
            from metrics_collector.early_stopping import RuleBook

            self._rules = RuleBook(rules, objective, objective_type)
        self._clock = clock
        self._last_stamp: datetime | None = None
        self._unread = set(self._counts)  # metrics without a usable reading, which need an explanation

    def take(self, readings: list[MetricLog]) -> list[MetricLog]:
        """Count readings, test the rules against them and return those of the metrics, with times."""
        readings = self._stamped(readings)
        rules, unread = self._rules, self._unread
        if rules is None and not unread and all(reading.value != UNAVAILABLE for reading in readings):
            return [reading for reading in readings if reading.name in self._counts]
        watched = frozenset[str]() if rules is None else rules.metrics
        was_unread, taken = bool(unread), list[MetricLog]()
        for reading in readings:
            if (counts := self._counts.get(reading.name)) is not None:
                taken.append(reading)
                if reading.value == UNAVAILABLE:  # revokes the earlier ones
                    self._counts[reading.name] = _ReadingCounts()
                    unread.add(reading.name)
                    continue
                if unread:
                    counts.readings += 1
                    counts.last = reading.value
                    if not counts.usable:
                        counts.numbers += parse_value(reading.value) is not None
                        counts.usable = is_usable(reading.value)
                        if counts.usable:
                            unread.discard(reading.name)
            if rules is not None and reading.name in watched:
                rules.observe(reading)
                self.verdict = rules.verdict
        if was_unread and not unread:
            self._evidence.drop()
        return taken

    def _stamped(self, readings: list[MetricLog]) -> list[MetricLog]:
        """Return readings with increasing times: logs sort by time, so this keeps the order."""
        if self._clock is None or not readings:
            return readings
        now, last, stamped = self._clock(), self._last_stamp, list[MetricLog]()
        for reading in readings:
            if reading.time is ZERO_TIME:
                last = now if last is None or now > last else last + _TICK
                stamped.append(MetricLog(last, reading.name, reading.value, reading.step))
            else:
                stamped.append(reading)
        self._last_stamp = last
        return stamped

    def explanation(self) -> str:
        """Return one sentence on why the objective metric has no usable reading; empty if it has one."""
        counts = self._counts[self._objective]
        if counts.usable:
            return ""
        is_lost = bool(counts.readings) and not self._evidence.refused(self._objective)  # it diverged
        remedies = [] if is_lost else self._evidence.remedies(self._objective)
        return REMEDY.join([self._cause(counts), *remedies])

    def _cause(self, counts: _ReadingCounts) -> str:
        seen = self._evidence.seen()
        if counts.readings:
            kind = "only as NaN or infinity" if counts.numbers == counts.readings else "never as a finite number"
            times = counted(counts.readings, "time")
            refused = f"; {self._evidence.refused(self._objective)}".rstrip("; ")
            return f"{seen}, {quote(self._objective)} read {times}, {kind}; last value: {quote(counts.last)}{refused}"
        if refused := self._evidence.refused(self._objective):
            return f"{seen}, {refused}"
        if self._evidence.is_empty:
            return f"{seen}; looked for {quote(self._objective)}"
        hint = self._evidence.hint(self._objective)
        return f"{seen}, none matched {quote(self._objective)}{self._others()}{hint}"

    def missing_metrics(self) -> str:
        """Return the problems of metrics besides the objective; empty if there are none.

        These are additional metrics without any reading, and refused values.
        """
        if not self._unread:
            return self.refused()
        others = [name for name, counts in self._counts.items() if not counts.readings and name != self._objective]
        missing = [name for name in others if not self._evidence.refused(name)]
        if not missing:
            return self.refused()
        names = ", ".join(map(quote, missing))
        found = f"{self._evidence.seen()}, none matched {names}{self._evidence.hint(missing[0])}"
        return "; ".join(filter(None, (self.refused(), found)))

    def refused(self) -> str:
        """Return the refused values; empty if all were accepted."""
        return "; ".join(filter(None, map(self._evidence.refused, self._counts)))

    def _others(self) -> str:
        found = [f"{quote(name)} read {counted(t.readings, 'time')}" for name, t in self._counts.items() if t.readings]
        return f" ({', '.join(found)})" if found else ""


def output_parser(spec: TrialSpec, objective: ObjectiveSpec) -> LineParser:
    """Return the parser of a trial's StdOut or File collector.

    Raises:
        InvalidError: The format is unknown, or a filter is not an RE2 pattern with two groups.
    """
    origin = spec.metrics_collector.source
    file_format = origin.file_system_path.format if origin and origin.file_system_path else ""
    filters = origin.filter.metrics_format if origin and origin.filter else ()
    return parser_for(file_format, wanted_names(objective.metric_names, spec.early_stopping_rules), filters)


def wanted_names(metrics: Sequence[str], rules: Sequence[EarlyStoppingRule]) -> list[str]:
    """Return the names to look for: the metrics, the objective first, and metrics that only rules use."""
    return list(dict.fromkeys([*metrics, *[rule.name for rule in rules]] if rules else metrics))
