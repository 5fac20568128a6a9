"""Conversion of `v1alpha3` Experiments to `kubeflow.org/v1beta1`.

A `v1alpha3` template is a Go template over the parameters and values of a trial. The parameters are known in advance,
so that everything except the values can be filled in at once, and a placeholder takes the place of each value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from katib.errors import invalid
from katib.model.names import LAST_APPLIED
from katib.model.types import API_VERSION
from katib.model.wording import shown
from katib.model.written import read_object, read_objects
from katib.service.drafting.experiments import Json
from katib.service.drafting.job_files import containers_in

OLD_API_VERSION: Final = "kubeflow.org/v1alpha3"
_KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations")
_ALGORITHMS: Final = {
    "chocolate-grid": "grid",
    "hyperopt-random": "random",
    "hyperopt-tpe": "tpe",
    "nasrl": "enas",
    "skopt-bayesian-optimization": "bayesianoptimization",
}
"""Names in early versions."""
_ARCHITECTURES: Final = {
    "enas": ("architecture", "nn_config"),
    "darts": ("algorithm-settings", "search-space", "num-layers"),
}
"""Inputs of the trials of an architecture search."""
_TRIAL: Final = "trial"
_CONTAINER: Final = "training"
_MARK: Final = "katib-placeholder-{}-katib"
_MARKS: Final = re.compile(r"katib-placeholder-(.+?)-katib")
_ACTION: Final = re.compile(
    r"(?P<before>\s*)\{\{(?P<trim>-(?=\s))?\s*(?P<words>.*?)\s*(?P<after>(?<=\s)-)?\}\}", re.DOTALL
)
_CONDITION: Final = re.compile(r'if (eq|ne) \.Name "([^"]*)"')
_INDEXED: Final = re.compile(r"\(index \.HyperParameters (\d+)\)\.(Name|Value)")
_REMEDY: Final = "write the trialSpec by hand, with ${trialParameters.NAME} for a value"


def experiments_of_v1alpha3(text: str, source: str) -> list[Json]:
    """Return the objects of a file with its v1alpha3 Experiments converted; empty if it has none.

    Raises:
        InvalidError: It is not YAML, or a template has no v1beta1 equivalent.
    """
    objects = [document.data for document in read_objects(text, source)]
    objects = [one for obj in objects for one in (obj.get("items") or () if _is(obj, "List", "v1") else (obj,))]
    if not any(_is(obj, "Experiment", OLD_API_VERSION) for obj in objects):
        return []
    maps = [obj for obj in objects if _is(obj, "ConfigMap", "v1")]
    return [_converted(obj, maps) if _is(obj, "Experiment", OLD_API_VERSION) else obj for obj in objects]


def _is(obj: Any, kind: str, version: str) -> bool:
    return isinstance(obj, dict) and (obj.get("kind"), obj.get("apiVersion")) == (kind, version)


def _converted(old: Json, maps: Sequence[Json]) -> Json:
    metadata = {name: value for name, value in (old.get("metadata") or {}).items() if name in _KEPT_METADATA}
    annotations = dict(metadata.pop("annotations", None) or {})
    annotations.pop(LAST_APPLIED, None)
    spec = dict(old.get("spec") or {})
    if isinstance(algorithm := spec.get("algorithm"), dict):
        name = str(algorithm.get("algorithmName") or "").replace("_", "-")
        if name in _ALGORITHMS:
            spec["algorithm"] = {**algorithm, "algorithmName": _ALGORITHMS[name]}
    template = spec.get("trialTemplate")
    if isinstance(template, dict) and isinstance(go := template.get("goTemplate"), dict):
        rest = {name: value for name, value in template.items() if name != "goTemplate"}
        spec["trialTemplate"] = {**rest, **_template(_text_of(go, metadata, maps), _parameters(spec))}
    return {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "metadata": {**metadata, **({"annotations": annotations} if annotations else {})},
        "spec": spec,
    }


def _parameters(spec: Json) -> list[str]:
    """Return the names of a trial's inputs."""
    if spec.get("nasConfig") is None:
        return [str(parameter.get("name")) for parameter in spec.get("parameters") or ()]
    return list(_ARCHITECTURES.get((spec.get("algorithm") or {}).get("algorithmName", ""), ()))


def _text_of(go: Json, metadata: Json, maps: Sequence[Json]) -> str:
    if isinstance(raw := go.get("rawTemplate"), str):
        return raw
    source = go.get("templateSpec") or {}
    name, path = source.get("configMapName"), source.get("templatePath")
    namespace = source.get("configMapNamespace") or metadata.get("namespace")
    for one in maps:
        found = one.get("metadata") or {}
        if found.get("name") == name and found.get("namespace", namespace) == namespace:
            text = (one.get("data") or {}).get(str(path))
            if isinstance(text, str):
                return text
    cause = f"the template {shown(path)} of ConfigMap {shown(name)} is not in the file"
    remedy = f"append the ConfigMap to the file: kubectl get configmap {name} -o yaml"
    raise invalid("spec.trialTemplate.goTemplate.templateSpec", cause, remedy, "old-template-missing")


def _template(text: str, parameters: Sequence[str]) -> Json:
    """Return the fields of a v1beta1 template."""
    names: dict[str, str] = {}
    for parameter in parameters:
        name = re.sub(r"[{}\s]", "", parameter).lstrip("-") or "parameter"
        while name in names.values() or name == _TRIAL:
            name += "_"
        names[parameter] = name
    filled = _GoTemplate([(name, _MARK.format(names[name])) for name in parameters]).filled(text)
    obj = read_object(filled, "spec.trialTemplate.goTemplate")
    if not isinstance(obj, dict):
        raise invalid("spec.trialTemplate.goTemplate", "it is not an object", _REMEDY, "old-template")
    used: list[str] = []
    metadata = {k: v for k, v in (obj.get("metadata") or {}).items() if k in ("labels", "annotations") and v}
    obj = {k: v for k, v in obj.items() if k != "metadata"} | ({"metadata": metadata} if metadata else {})
    containers = list(containers_in(obj))
    for container in containers:
        if container.get("name") == _MARK.format(_TRIAL):
            container["name"] = _CONTAINER
    made = _with_placeholders(obj, used)
    references = {name: parameter for parameter, name in names.items()} | {_TRIAL: "${trialSpec.Name}"}
    return {
        **({"primaryContainerName": containers[0].get("name")} if containers else {}),
        "trialParameters": [{"name": name, "reference": references[name]} for name in dict.fromkeys(used)],
        "trialSpec": made,
    }


def _with_placeholders(node: Any, used: list[str]) -> Any:
    """Return a tree with placeholders in place of marks; `used` receives their names."""
    if isinstance(node, dict):
        return {_with_placeholders(key, used): _with_placeholders(child, used) for key, child in node.items()}
    if isinstance(node, list):
        return [_with_placeholders(child, used) for child in node]
    if not isinstance(node, str):
        return node
    used += _MARKS.findall(node)
    return _MARKS.sub(r"${trialParameters.\1}", node)


@dataclass(slots=True)
class _GoTemplate:
    """The part of Go's text templates that trial templates use, evaluated with marks for values."""

    parameters: Sequence[tuple[str, str]]
    errors: list[str] = field(default_factory=list)

    def filled(self, text: str) -> str:
        """Return the text of a template.

        Raises:
            InvalidError: It holds an unknown action, or a block that does not end.
        """
        nodes, end = self._parsed(_pieces(text))
        if end:
            self.errors.append(end)
        result = self._evaluated(nodes, None)
        if self.errors:
            action = f"{{{{{self.errors[0]}}}}}"
            cause = f"{action} cannot be converted"
            raise invalid("spec.trialTemplate.goTemplate", cause, _REMEDY, "old-template")
        return result

    def _parsed(self, pieces: Iterator[tuple[str, bool]]) -> tuple[list[Any], str]:
        """Return the nodes up to the end of a block, and the action that ends it."""
        nodes: list[Any] = []
        for piece, is_action in pieces:
            if not is_action:
                nodes.append(piece)
            elif piece in ("end", "else"):
                return nodes, piece
            elif piece.split(" ")[0] in ("with", "range", "if"):
                body, end = self._parsed(pieces)
                other, end = self._parsed(pieces) if end == "else" else ([], end)
                self.errors += [piece] if end != "end" else []
                nodes.append((piece, body, other))
            elif not piece.startswith("/*"):
                nodes.append((piece, None, None))
        return nodes, ""

    def _evaluated(self, nodes: Sequence[Any], parameter: tuple[str, str] | None) -> str:
        return "".join(node if isinstance(node, str) else self._action(node, parameter) for node in nodes)

    def _action(self, node: tuple[str, Any, Any], parameter: tuple[str, str] | None) -> str:
        words, body, other = node
        if body is None:
            return self._value(words, parameter)
        if words in ("with .HyperParameters", "if .HyperParameters"):
            return self._evaluated(body if self.parameters else other, parameter)
        if words in ("range .", "range .HyperParameters"):
            return "".join(self._evaluated(body, one) for one in self.parameters)
        if parameter and (condition := _CONDITION.fullmatch(words)):
            holds = (parameter[0] == condition[2]) == (condition[1] == "eq")
            return self._evaluated(body if holds else other, parameter)
        self.errors.append(words)
        return ""

    def _value(self, words: str, parameter: tuple[str, str] | None) -> str:
        values: Mapping[str, str] = {".Trial": _MARK.format(_TRIAL), ".NameSpace": "", ".Experiment": ""}
        if parameter:
            values = {**values, ".Name": parameter[0], ".Value": parameter[1]}
        found = _INDEXED.fullmatch(words)
        if found and int(found[1]) < len(self.parameters):
            return self.parameters[int(found[1])][found[2] == "Value"]
        if words not in values:
            self.errors.append(words)
        return values.get(words, "")


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield texts and actions in turn, each with whether it is an action; a minus sign trims adjacent blanks."""
    place, trims = 0, False
    for match in _ACTION.finditer(text):
        before = text[place : match.start()] + ("" if match["trim"] else match["before"])
        yield before.lstrip() if trims else before, False
        yield " ".join(match["words"].split()), True
        place, trims = match.end(), match["after"] is not None
    yield text[place:].lstrip() if trims else text[place:], False
