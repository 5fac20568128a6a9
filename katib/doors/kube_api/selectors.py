"""Label and field selectors, parsed into predicates. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from katib.doors.kube_api.columns import value_at
from katib.doors.kube_api.statuses import StatusError, bad_request
from katib.engine.runtime.objects import Object

_KEY = r"[A-Za-z0-9][A-Za-z0-9_./-]*"
_VALUE = r"[A-Za-z0-9_.-]*"
_IN = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_COMPARED = re.compile(rf"({_KEY})\s*(==|=|!=|<|>)\s*({_VALUE})")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")

_FIELDS: Mapping[str, frozenset[str]] = {
    "Pod": frozenset({"spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"}),
    "Event": frozenset(
        {"reason", "reportingComponent", "source", "type"}
        | {f"involvedObject.{name}" for name in ("apiVersion", "fieldPath", "kind", "name", "namespace", "uid")}
    ),
    "Job": frozenset({"status.successful"}),
    "Namespace": frozenset({"status.phase"}),
    "Secret": frozenset({"type"}),
}
"""Selectable fields by kind, beside `metadata.name` and `metadata.namespace`."""

Fits = Callable[[Object], bool]


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed selector.

    Attributes:
        labels: Required labels; a store finds them by an index.
        name: The required name; empty for any.
        may_change: Whether an existing object may begin or cease to match.
    """

    labels: Mapping[str, str]
    name: str = ""
    others: tuple[Fits, ...] = ()
    may_change: bool = False

    @property
    def is_by_index(self) -> bool:
        """Whether the labels alone decide."""
        return not self.name and not self.others

    def fits(self, obj: Object) -> bool:
        if self.name and value_at(obj, "metadata", "name") != self.name:
            return False
        return self.labels.items() <= _labels(obj).items() and all(fits(obj) for fits in self.others)


EVERYTHING = Selector({})


def selector_of(kind: str, label_selector: str, field_selector: str) -> Selector:
    """Return the conjunction of two selectors.

    Args:
        kind: Kind of the objects, which determines the selectable fields.
        label_selector: Such as `app=demo,tier in (a,b),!old`.
        field_selector: Such as `metadata.name=demo`.

    Raises:
        StatusError: One of them is malformed.
    """
    labels: dict[str, str] = {}
    others: list[Fits] = []
    for part in _parts(label_selector):
        key, values, fits = _label_requirement(part)
        if len(values) == 1 and labels.get(key, values[0]) == values[0]:
            labels[key] = values[0]
        else:
            others.append(fits)
    name = ""
    for part in _parts(field_selector):
        path, wanted, is_equal = _field_requirement(kind, part)
        if (path, is_equal) == ("metadata.name", True) and not name:
            name = wanted
        else:
            others.append(_field_fits(path, wanted, is_equal=is_equal))
    return Selector(labels, name, tuple(others), may_change=bool(labels or others))


def _parts(text: str) -> Iterator[str]:
    return filter(None, (part.strip() for part in _COMMA_OUTSIDE.split(text)))


def _label_requirement(part: str) -> tuple[str, list[str], Fits]:
    """Return the key, the allowed values if it is a plain equality, and the predicate."""
    if found := _IN.fullmatch(part):
        key, word, text = found.groups()
        values = [value.strip() for value in text.split(",")]
        return key, values if word == "in" else [], _one_of(key, frozenset(values), wanted=word == "in")
    if found := _COMPARED.fullmatch(part):
        key, sign, value = found.groups()
        if sign in "<>":
            return key, [], _compared(part, key, sign, value)
        is_equal = sign != "!="
        return key, [value] if is_equal else [], _one_of(key, frozenset({value}), wanted=is_equal)
    if found := _EXISTS.fullmatch(part):
        absent, key = found.groups()
        return key, [], lambda obj: (key in _labels(obj)) is not bool(absent)
    raise _broken("labelSelector", part, "write it as app=demo, app!=demo, app in (a,b), app or !app")


def _one_of(key: str, values: frozenset[str], *, wanted: bool) -> Fits:
    def fits(obj: Object) -> bool:
        labels = _labels(obj)
        return (key in labels and labels[key] in values) is wanted

    return fits


def _compared(part: str, key: str, sign: str, value: str) -> Fits:
    if not value.isdecimal():
        raise _broken("labelSelector", part, "compare with a whole number")

    def fits(obj: Object) -> bool:
        held = _labels(obj).get(key, "")
        return held.isdecimal() and (int(held) < int(value) if sign == "<" else int(held) > int(value))

    return fits


def _labels(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = (obj.get("metadata") or {}).get("labels") or {}
    return labels


def _field_requirement(kind: str, part: str) -> tuple[str, str, bool]:
    path, sign, value = re.match(r"([^=!]*)(==|=|!=|)(.*)", part, re.DOTALL).groups()  # type: ignore[union-attr] # it fits any text
    if not sign:
        raise _broken("fieldSelector", part, "write it as metadata.name=demo")
    if path not in ("metadata.name", "metadata.namespace") and path not in _FIELDS.get(kind, ()):
        known = ", ".join(sorted({"metadata.name", "metadata.namespace"} | _FIELDS.get(kind, frozenset())))
        raise bad_request(f'fieldSelector: "{path}" is not a known field selector of {kind}; use {known}')
    return path, value, sign != "!="


def _field_fits(path: str, wanted: str, *, is_equal: bool) -> Fits:
    steps = path.split(".")

    def fits(obj: Object) -> bool:
        value: Any = value_at(obj, *steps)
        return (("" if value is None else str(value)) == wanted) is is_equal

    return fits


def _broken(field: str, part: str, remedy: str) -> StatusError:
    return bad_request(f'{field}: "{part}" cannot be understood; {remedy}')
