"""The form of the page New: the common parts of an Experiment as fields, and back. Pure.

The text of the editor is authoritative. The form shows its content, and a change in the form changes only the form's
fields; everything else of the text stays, except comments, which are lost when the text is rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from katib.model.types import API_VERSION
from katib.model.validation.update import COUNTS
from katib.service.tuning.service import Json

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_SPACE = ("min", "max", "step", "distribution")


def form_of(experiment: Json) -> Json:
    """Return the fields of the form for a document of any content; all texts."""
    metadata, spec = _map(experiment, "metadata"), _map(experiment, "spec")
    objective, algorithm, stopping = (_map(spec, key) for key in ("objective", "algorithm", "earlyStopping"))
    return {
        "name": _text(metadata.get("name")),
        "namespace": _text(metadata.get("namespace")),
        "type": _text(objective.get("type")),
        "metric": _text(objective.get("objectiveMetricName")),
        "goal": _text(objective.get("goal")),
        "additional": ", ".join(map(_text, _list(objective, "additionalMetricNames"))),
        "algorithm": _text(algorithm.get("algorithmName")),
        "settings": _settings(algorithm),
        "earlyStopping": _text(stopping.get("algorithmName")),
        "earlyStoppingSettings": _settings(stopping),
        **{count: _text(spec.get(count)) for count in COUNTS},
        "parameters": [_parameter(one) for one in _list(spec, "parameters") if isinstance(one, dict)],
    }


def with_form(experiment: Json, form: Mapping[str, Any]) -> Json:
    """Return a document with the form's values; empty fields are removed."""
    old_spec = _map(experiment, "spec")
    metadata = _filled(_map(experiment, "metadata"), {"name": form.get("name"), "namespace": form.get("namespace")})
    objective = _filled(
        _map(old_spec, "objective"),
        {
            "type": form.get("type"),
            "objectiveMetricName": form.get("metric"),
            "goal": _number(form.get("goal")),
            "additionalMetricNames": _words(form.get("additional")),
        },
    )
    if _list(objective, "objectives"):  # several objectives are a matter of the text
        objective = _map(old_spec, "objective")
    parts: Json = {
        "objective": objective,
        "algorithm": _algorithm(_map(old_spec, "algorithm"), form, "algorithm", "settings"),
        "earlyStopping": _algorithm(_map(old_spec, "earlyStopping"), form, "earlyStopping", "earlyStoppingSettings"),
        **{count: _number(form.get(count)) for count in COUNTS},
        "parameters": _parameters(_list(old_spec, "parameters"), form.get("parameters")),
    }
    head = {"apiVersion": experiment.get("apiVersion", API_VERSION), "kind": experiment.get("kind", "Experiment")}
    return {**head, **experiment, "metadata": metadata, "spec": _filled(old_spec, parts)}


def line_of(text: str, path: str) -> int | None:
    """Return the line, from one, of the value of a path, or of the nearest existing part of it.

    Args:
        text: YAML.
        path: As errors name it: `spec.parameters[2].feasibleSpace.min`.
    """
    try:
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        return None
    line: int | None = None
    for key, index in _STEP.findall(path):
        node, found = _child(node, key, index)
        if node is None or found is None:
            return line
        line = found
    return line


def _child(node: Any, key: str, index: str) -> tuple[Any, int | None]:
    if index and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
        child = node.value[int(index)]
        return child, child.start_mark.line + 1
    if key and isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                return value, name.start_mark.line + 1
    return None, None


def _parameter(one: Json) -> Json:
    space = _map(one, "feasibleSpace")
    return {
        "name": _text(one.get("name")),
        "type": _text(one.get("parameterType")),
        "list": ", ".join(map(_text, _list(space, "list"))),
        **{key: _text(space.get(key)) for key in _SPACE},
    }


def _parameters(old: Sequence[Any], rows: Any) -> list[Json]:
    """Return the form's parameters; parts of one of the same name that it does not show, such as `when`, stay."""
    by_name = {one.get("name"): one for one in old if isinstance(one, dict)}
    made = []
    for row in rows if isinstance(rows, list) else ():
        before = by_name.get(row.get("name"), {})
        space = _filled(
            _map(before, "feasibleSpace"), {**{key: row.get(key) for key in _SPACE}, "list": _words(row.get("list"))}
        )
        made.append(
            {**before, "name": row.get("name", ""), "parameterType": row.get("type", ""), "feasibleSpace": space}
        )
    return made


def _algorithm(old: Json, form: Mapping[str, Any], name: str, settings: str) -> Json:
    if not form.get(name):
        return {}
    rows = form.get(settings)
    kept = [
        {"name": row.get("name", ""), "value": _text(row.get("value"))}
        for row in (rows if isinstance(rows, list) else ())
        if row.get("name")
    ]
    return _filled(old, {"algorithmName": form.get(name), "algorithmSettings": kept})


def _settings(algorithm: Json) -> list[Json]:
    return [
        {"name": _text(one.get("name")), "value": _text(one.get("value"))}
        for one in _list(algorithm, "algorithmSettings")
        if isinstance(one, dict)
    ]


def _filled(old: Json, new: Mapping[str, Any]) -> Json:
    """Return the old mapping with the new values, in the old order; an empty value removes its key."""
    made = {**old, **new}
    return {key: value for key, value in made.items() if key not in new or value not in (None, "", [], {})}


def _map(of: Any, key: str) -> Json:
    found = of.get(key) if isinstance(of, dict) else None
    return found if isinstance(found, dict) else {}


def _list(of: Any, key: str) -> list[Any]:
    found = of.get(key) if isinstance(of, dict) else None
    return found if isinstance(found, list) else []


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(text: Any) -> list[str]:
    return [word for part in _text(text).split(",") if (word := part.strip())]


def _number(text: Any) -> int | float | str | None:
    """Return the number in a text; other text stays, so that the check reports it."""
    given = _text(text).strip()
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    return given or None


def unsubmitted(experiment: Json, names: Iterable[str]) -> Json:
    """Return a document that would create the same experiment again, under a free name.

    Args:
        experiment: The stored experiment.
        names: Names of the experiments in its namespace.
    """
    metadata, taken = experiment["metadata"], set(names)
    base = re.sub(r"-\d+$", "", str(metadata["name"]))
    number = 2
    while f"{base}-{number}" in taken:
        number += 1
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if metadata.get(key)}
    spec = {key: value for key, value in experiment.get("spec", {}).items() if value not in (None, [], {})}
    return {
        "apiVersion": experiment["apiVersion"],
        "kind": experiment["kind"],
        "metadata": {"name": f"{base}-{number}", **kept},
        "spec": spec,
    }
