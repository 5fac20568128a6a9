"""The sidecar's command line, with the flags of Katib's collectors.

A flag takes the next argument, whatever it is, or the text after its `=`. One dash is equivalent to two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from katib.errors import FieldError, InvalidError
from katib.model.metrics import compile_format
from katib.model.types import EarlyStoppingRule

FLAGS = ("t", "m", "o-type", "s-db", "path", "f", "format", "stop-rule", "s-earlystop", "p", "timeout", "w")

DEFAULT_POLL_SECONDS = 0.2
_LEAST_POLL_SECONDS = 0.02
_UNITS = {"": 1.0, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|ms|s|m|h|)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Parsed command line of a collector.

    Attributes:
        metrics: The objective metric, then the additional ones.
        objective_type: `minimize` or `maximize`.
        db_manager: `host:port` of the DB manager.
        path: The metrics file, or the directory of event files; None if there is neither.
        file_format: `TEXT` or `JSON`; empty if it is not given, which means `TEXT` for a file.
        filters: RE2 patterns; empty for the default one.
        early_stopping: `host:port` of the service to notify of an early stop; empty without rules.
        poll_seconds: Pause between two polls.
        timeout_seconds: Maximum run time of the program; 0: unlimited.
        wait_all: Whether to wait for every container of the pod, not just for the program.
    """

    trial: str
    metrics: tuple[str, ...]
    objective_type: str
    db_manager: str
    path: Path | None = None
    file_format: str = ""
    filters: tuple[str, ...] = ()
    rules: tuple[EarlyStoppingRule, ...] = ()
    early_stopping: str = ""
    poll_seconds: float = DEFAULT_POLL_SECONDS
    timeout_seconds: float = 0.0
    wait_all: bool = True


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Read a command line.

    Raises:
        InvalidError: With all errors of the command line.
    """
    given: dict[str, str] = {}
    rule_texts: list[str] = []
    errors: list[FieldError] = []
    for name, value in _flags(arguments, errors):
        if name == "stop-rule":
            rule_texts.append(value)
        else:
            given[name] = value
    for name, what in (("t", "the trial"), ("m", "the metrics"), ("s-db", "the DB manager")):
        if not given.get(name):
            errors.append(_error(name, "it is missing", f"name {what}", "flag-required"))
    rules = tuple(rule for text in rule_texts if (rule := _rule(text, errors)) is not None)
    if rules and not given.get("s-earlystop"):
        errors.append(_error("s-earlystop", "it is missing", "name the early stopping service", "flag-required"))
    poll = _duration("p", given.get("p", ""), DEFAULT_POLL_SECONDS, errors)
    timeout = _duration("timeout", given.get("timeout", ""), 0.0, errors)
    if errors:
        raise InvalidError(errors)
    return Arguments(
        trial=given["t"],
        metrics=tuple(name for name in given["m"].split(";") if name),
        objective_type=given.get("o-type", ""),
        db_manager=given["s-db"],
        path=Path(given["path"]) if given.get("path") else None,
        file_format=given.get("format", ""),
        filters=split_filters(given.get("f", "")),
        rules=rules,
        early_stopping=given.get("s-earlystop", ""),
        poll_seconds=max(poll, _LEAST_POLL_SECONDS),
        timeout_seconds=timeout,
        wait_all=given.get("w", "true").lower() not in {"false", "0", "f"},
    )


def split_filters(text: str) -> tuple[str, ...]:
    """Split patterns joined by semicolons; a piece that is not a valid pattern contained a semicolon itself."""
    filters: list[str] = []
    rest = ""
    for piece in text.split(";"):
        rest = f"{rest};{piece}" if rest else piece
        if _is_filter(rest):
            filters.append(rest)
            rest = ""
    return (*filters, rest) if rest else tuple(filters)


def _flags(arguments: Sequence[str], errors: list[FieldError]) -> Iterator[tuple[str, str]]:
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        name = name[2:] if name.startswith("--") else name.removeprefix("-")
        if not argument.startswith("-") or name not in FLAGS:
            errors.append(_error(argument, "no such flag", f"use -{', -'.join(FLAGS)}", "flag-unknown"))
        elif equals:
            yield name, value
        elif (following := next(rest, None)) is None:
            errors.append(_error(name, "it has no value", "give one", "flag-value"))
        else:
            yield name, following


def _rule(text: str, errors: list[FieldError]) -> EarlyStoppingRule | None:
    name, value, comparison, start_step, *more = *text.split(";"), "", "", "", ""
    if not name or not value or not comparison or any(more) or not re.fullmatch(r"-?\d*", start_step, re.ASCII):
        remedy = "write name;value;comparison;startStep with a whole number"
        errors.append(_error("stop-rule", f"{text!r} is no rule", remedy, "stop-rule"))
        return None
    return EarlyStoppingRule(name=name, value=value, comparison=comparison, start_step=int(start_step or 0))


def _duration(flag: str, text: str, default: float, errors: list[FieldError]) -> float:
    if not text:
        return default
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        errors.append(_error(flag, f"{text!r} is not a duration", "write one such as 1s or 500ms", "duration"))
        return default
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _is_filter(text: str) -> bool:
    try:
        compile_format(text, "filter")
    except InvalidError:
        return False
    return True


def _error(flag: str, cause: str, remedy: str, origin: str) -> FieldError:
    return FieldError(flag if flag.startswith("-") else f"-{flag}", cause, remedy, origin)
