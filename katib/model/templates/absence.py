"""Templates in trials in which a parameter has no value.

A trial parameter's `otherwise` gives the replacement. Without one, the list element that contains the placeholder is
left out: an argument, an entry of `env`. Within nested lists, that is the innermost element. A container is never left
out, and outside of lists nothing can be, so both require an `otherwise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from katib.errors import FieldError, InvalidError
from katib.model.templates.nodes import TYPE_WORDS, FieldSlot, prepare_yaml
from katib.model.templates.placeholders import find_placeholders, split_text
from katib.model.templates.source import PARAMETERS_PATH, template_path
from katib.model.templates.typed_fields import field_type
from katib.model.types import ParameterSpec, TrialParameterSpec, TrialTemplate
from katib.model.wording import path_to, shown

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of a list."""

    path: str
    key: str
    value: Any
    before: Any


@dataclass(frozen=True, slots=True)
class _PlaceholderText:
    """A text with a placeholder, and the innermost list element that contains it.

    Attributes:
        name: Name of the trial parameter.
        text: The text, or the key if the placeholder is in a key.
        keys: The keys that lead to the text, outermost first.
        element: None outside of lists.
    """

    name: str
    path: str
    text: str
    keys: tuple[str, ...]
    element: _Element | None


@dataclass(frozen=True, slots=True)
class _Absence:
    """The trial parameters that may have no value, and those with an `otherwise`."""

    entries: Mapping[str, tuple[int, TrialParameterSpec]]
    specs: Mapping[str, ParameterSpec]

    @property
    def names(self) -> list[str]:
        """Trial parameters without a value in some trials."""
        return [name for name, (_, entry) in self.entries.items() if self.specs[entry.reference].when is not None]

    @property
    def optional(self) -> frozenset[str]:
        """Those of them whose list element is left out."""
        return frozenset(name for name in self.names if self.entries[name][1].otherwise is None)

    def implies(self, name: str, other: str) -> bool:
        """Return whether the other one has a value in every trial in which this one has."""
        wanted = self.specs[self.entries[other][1].reference]
        at: ParameterSpec | None = self.specs[self.entries[name][1].reference]
        passed: list[ParameterSpec] = []
        while at is not None and at not in passed:
            passed.append(at)
            if at == wanted or wanted.when is None:
                return True
            if at.when is None:
                return False
            if at.when.parameter == wanted.when.parameter and set(at.when.values) <= set(wanted.when.values):
                return True
            at = self.specs.get(at.when.parameter)
        return False


def _absence(template: TrialTemplate, parameters: Sequence[ParameterSpec]) -> _Absence:
    specs = {spec.name: spec for spec in parameters}
    entries = {entry.name: (i, entry) for i, entry in enumerate(template.trial_parameters or ())}
    return _Absence({name: found for name, found in entries.items() if found[1].reference in specs}, specs)


def optional_names(template: TrialTemplate, parameters: Sequence[ParameterSpec]) -> frozenset[str]:
    """Return the trial parameters whose list element is left out in trials in which they have no value."""
    return _absence(template, parameters).optional


def prevents_rendering(error: FieldError) -> bool:
    """Return whether an error of `check_absence` leaves a placeholder without a text; others concern the meaning."""
    return error.origin == "template-otherwise-missing"


def check_absence(
    template: TrialTemplate, parameters: Sequence[ParameterSpec], source: Mapping[str, Any], text: str | None
) -> Iterator[FieldError]:
    """Check the replacements of parameters without a value."""
    absence = _absence(template, parameters)
    for i, entry in enumerate(template.trial_parameters or ()):
        if entry.otherwise is not None and entry.name not in absence.names:
            cause = f"{entry.reference or 'it'} has a value in every trial"
            yield FieldError(
                f"{PARAMETERS_PATH}[{i}].otherwise", cause, "remove it", "trial-parameter-otherwise-unused"
            )
    if not absence.names:
        return
    places = list(_places(source, template_path(template))) if _is_structured(text) else []
    if not _is_structured(text):
        places = [_PlaceholderText(name, template_path(template), "", (), None) for name in find_placeholders(text)]
    errors: list[FieldError] = []
    for name in absence.names:
        found = [place for place in places if place.name == name]
        check = _check_left_out if name in absence.optional else _check_otherwise
        errors += check(absence.entries[name], found)
    yield from errors
    named = {error.path for error in errors}
    yield from (error for error in _check_others(absence, places) if error.path not in named)


def _is_structured(text: str | None) -> bool:
    """Return whether the template is an object even with its placeholders."""
    try:
        return text is None or prepare_yaml(text) is not None
    except InvalidError:
        return False


def _check_otherwise(
    numbered: tuple[int, TrialParameterSpec], places: Sequence[_PlaceholderText]
) -> Iterator[FieldError]:
    i, entry = numbered
    for place in places:
        kind = field_type(place.keys)
        if kind is None or split_text(place.text)[::2] != ("", ""):
            continue
        try:
            FieldSlot(entry.name, kind, place.path).fill({entry.name: entry.otherwise or ""})
        except InvalidError:
            path = f"{PARAMETERS_PATH}[{i}].otherwise"
            cause = f"{shown(entry.otherwise)} is not {TYPE_WORDS[kind]}, as {place.path} needs"
            yield FieldError(path, cause, "give a value of that type", "trial-parameter-otherwise-type")
            return


def _check_left_out(
    numbered: tuple[int, TrialParameterSpec], places: Sequence[_PlaceholderText]
) -> Iterator[FieldError]:
    i, entry = numbered
    for place in places:
        element = place.element
        if element is None or element.key in _CONTAINERS:
            why = "not in a list, from which it could be left out" if element is None else "part of a container"
            cause = f"{entry.reference} has no value in some trials, and at {place.path} it is {why}"
            remedy = "say what stands there in these trials"
            yield FieldError(f"{PARAMETERS_PATH}[{i}].otherwise", cause, remedy, "template-otherwise-missing")
            return
    for place in places:
        element = place.element
        if element is not None and _is_value_of_flag(element):
            cause = f"it is left out in trials without {entry.reference}, but {shown(element.before)} before it stays"
            remedy = f"give {PARAMETERS_PATH}[{i}].otherwise"
            if split_text(place.text) == ("", entry.name, ""):
                remedy = f"write both as one element, or {remedy}"
            yield FieldError(element.path, cause, remedy, "template-absent-value-of-flag")
            return


def _is_value_of_flag(element: _Element) -> bool:
    """Return whether this is the second of two related arguments, such as `--lr 0.1` or `-c SCRIPT`."""
    flag, value = element.before, element.value
    if not isinstance(flag, str) or not isinstance(value, str):
        return False
    return flag.startswith("-") and "=" not in flag and not value.startswith("-")


def _check_others(absence: _Absence, places: Sequence[_PlaceholderText]) -> Iterator[FieldError]:
    """Find parameters with a value in a trial that loses every occurrence of their placeholder."""
    inside: dict[str, list[str]] = {}
    for place in places:
        if place.element is not None and place.name in absence.optional:
            inside.setdefault(place.element.path, []).append(place.name)
    for name in absence.entries:
        lost: list[tuple[_Element, str]] = []
        for place in (place for place in places if place.name == name):
            element = place.element
            rivals = [q for q in inside.get(element.path, []) if not absence.implies(name, q)] if element else []
            if element is None or not rivals:
                break
            lost.append((element, rivals[0]))
        else:
            for element, rival in lost[:1]:
                i, entry = absence.entries[rival]
                cause = f"it is left out in trials without {entry.reference}, and the value of {name} with it"
                remedy = f"give each an element of its own, or give {PARAMETERS_PATH}[{i}].otherwise"
                yield FieldError(element.path, cause, remedy, "template-absent-with-others")


def _places(
    node: Any, path: str, keys: tuple[str, ...] = (), element: _Element | None = None
) -> Iterator[_PlaceholderText]:
    if isinstance(node, str):
        yield from (_PlaceholderText(name, path, node, keys, element) for name in find_placeholders(node))
    elif isinstance(node, Mapping):
        for key, child in node.items():
            where = path_to(path, str(key))
            yield from (_PlaceholderText(name, where, str(key), (), element) for name in find_placeholders(str(key)))
            yield from _places(child, where, (*keys, str(key)), element)
    elif isinstance(node, list | tuple):
        for i, child in enumerate(node):
            inner = _Element(f"{path}[{i}]", keys[-1] if keys else "", child, node[i - 1] if i else None)
            yield from _places(child, inner.path, keys, inner)


def variants(
    template: TrialTemplate, parameters: Sequence[ParameterSpec], source: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield the variants of a trial's object that lack list elements, with placeholders.

    For each parameter whose element may be left out there is one without it and its dependents, and one lacks all of
    them.
    """
    absence = _absence(template, parameters)
    kinds = {frozenset(p for p in absence.optional if absence.implies(p, q)) for q in absence.optional}
    for names in sorted({*kinds, absence.optional} if absence.optional else (), key=sorted):
        yield _without(source, names)


def _without(node: Any, names: frozenset[str]) -> Any:
    if isinstance(node, Mapping):
        return {key: _without(child, names) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_without(child, names) for child in node if names.isdisjoint(_own_names(child))]
    return node


def _own_names(node: Any) -> Iterator[str]:
    """Yield the placeholders of a list element, without those in elements of nested lists."""
    if isinstance(node, str):
        yield from find_placeholders(node)
    elif isinstance(node, Mapping):
        for key, child in node.items():
            yield from find_placeholders(str(key))
            yield from _own_names(child)
