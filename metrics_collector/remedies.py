"""Remedies for a missing metric: each is tested on a sample of the output, and kept if it finds the metric.

A remedy is a clause in the imperative. It contains patterns as they are typed: without quotes, so that the quoted form
is the same for a shell and for YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from katib.model.metrics import is_usable
from metrics_collector.explanation import names_like
from metrics_collector.parsers import LineParser, TextParser
from metrics_collector.parsers.json_lines import JsonParser

_MOST_NAMES = 3

_NUMBER = r"[+-]?\d*\.?\d+(?:[Ee][+-]?\d+)?"
_UP_TO_A_NUMBER = r"([^\w\n=:]{1,8}?(?:(?:is|was|of|at)[^\w\n=:]{1,8}?)?)"
"""A sign would make it a name, which needs no pattern, or another metric."""

_IN_FILE = "metricsFormat (--metrics-format of katib tune)"


def remedies(metric: str, parser: LineParser, lines: Sequence[str]) -> list[str]:
    """Return the changes that would make a metric readable, the likeliest first."""
    others = [*parser.notes.ambiguous.get(metric, ()), *names_like(metric, lines)]
    others = [name for name in dict.fromkeys(others) if name != metric]
    if isinstance(parser, JsonParser):
        example = json.dumps({metric: 0.5})
        names = [name for name in others if name in _found(JsonParser([name]), lines)]
        return [*_naming(metric, names), f"write lines such as `{example}`"]
    return _remedies_of_text(metric, parser, others, lines) if isinstance(parser, TextParser) else []


def _remedies_of_text(metric: str, parser: TextParser, others: Sequence[str], lines: Sequence[str]) -> list[str]:
    filters, found = parser.filters, list[str]()
    now, without = (_found(TextParser(parser.names, patterns), lines) for patterns in (filters, ()))
    names = [name for name in others if name in _found(TextParser([name], filters), lines)]
    if filters and without >= now:
        if metric in without:
            found.append(f'remove {_IN_FILE}, without which "{metric}" is read')
        elif not names:
            plain = [name for name in others if name in _found(TextParser([name]), lines)]
            found += [f"remove {_IN_FILE} and {naming}" for naming in _naming(metric, plain)]
    found += _naming(metric, names)
    if pattern := _pattern(metric, lines):
        then = _found(TextParser(parser.names, [*filters, pattern]), lines)
        if metric in then and then >= now:
            found.append(f"{'add' if filters else 'give'} '{pattern}' {'to' if filters else 'as'} {_IN_FILE}")
    numbers: tuple[str, ...] = ("0.5",)
    what = f"lines such as `{metric}=0.5`"
    if metric in parser.notes.refused:
        numbers, what = ("1234.5", "1e-05"), "plain numbers such as 1234.5 or 1e-05"
    for way, patterns in (("", filters), (f" and remove {_IN_FILE}", ())):
        if all(metric in _found(TextParser([metric], patterns), [f"{metric}={number}"]) for number in numbers):
            return [*found, f"print {what}{way}"]
    return found


def _naming(metric: str, names: Sequence[str]) -> list[str]:
    quoted = " or ".join(f'"{name}"' for name in names[:_MOST_NAMES])
    return [f'name {quoted} instead of "{metric}" if that is the intended metric'] if quoted else []


def _found(parser: LineParser, lines: Iterable[str]) -> set[str]:
    """Return the metrics of which a new parser reads a number in these lines."""
    text = "".join(f"{line}\n" for line in lines).encode(errors="replace")
    readings = [*parser.feed(text), *parser.finish()]
    return {reading.name for reading in readings if is_usable(reading.value)} - parser.notes.ambiguous.keys()


def _pattern(metric: str, lines: Iterable[str]) -> str:
    """Return a pattern for the first line that has a number after the name; empty if there is none."""
    searched = re.compile(rf"(?<![\w-]){re.escape(metric)}{_UP_TO_A_NUMBER}{_NUMBER}")
    match = next(filter(None, map(searched.search, lines)), None)
    if match is None:
        return ""
    between = re.sub(r"(?:\\\s)+", r"\\s+", re.escape(match[1]))
    return f"({re.escape(metric)}){between}({_NUMBER})".replace("\\ ", " ").replace("'", r"\x27")
