"""Generate `manifests/chart` from `manifests/components` (run by `make chart`), except for Helm's own files.

Each component becomes a file of templates under the condition that its install has: a value instead of a list of
components. Patches of a component are merged into the objects of others, as kustomize merges them, under its condition.
A contract test compares the results of both ways.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from katib.model.version import __version__
from katib.places.cluster.version import OLDEST
from tools.chart_values import Json, schema, sections, values_file
from tools.images import NAMES

ROOT = Path(__file__).resolve().parent.parent
COMPONENTS = ROOT / "manifests" / "components"
CHART = ROOT / "manifests" / "chart"
BY_HAND = {"templates/NOTES.txt", "templates/check.yaml", "templates/_helpers.tpl", "templates/tests/experiment.yaml"}

CONDITIONS = {
    "crds": ".Values.crds.install",
    "rbac": "",
    "config": "",
    "webhook": "",
    "controller": "",
    "db-manager": "",
    "server": "",
    "network-policies": ".Values.networkPolicies",
    "sqlite": 'eq .Values.database "sqlite"',
    "postgres": 'eq .Values.database "postgres"',
    "mysql": 'eq .Values.database "mysql"',
    "external-db": 'eq .Values.database "external"',
    "cert-manager": 'eq .Values.certificates "cert-manager"',
    "server-token": 'eq .Values.server.access "token"',
    "kubeflow": 'eq .Values.server.access "kubeflow"',
    "optimization-jobs": ".Values.optimizationJobs.enabled",
}
"""The condition of each component; an install has those without one. Helm creates the namespace."""

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}
"""Lists of a pod that patches extend, and the field that identifies their items; a patch replaces other lists."""

PARTS = {
    "katib-controller": "controller",
    "katib-db-manager": "dbManager",
    "katib-server": "server",
    "katib-postgres": "postgres",
    "katib-mysql": "mysql",
}
"""The section of the values for each Deployment."""
DATABASES = {"postgres", "mysql"}

_IMAGE = re.compile(rf"katib/({'|'.join(NAMES)}):{re.escape(__version__)}")
_CONFIGURED_IMAGE = re.compile(rf"image: {_IMAGE.pattern}")
_NAMESPACE = re.compile(r"^kubeflow(?=/)|(?<=\.)kubeflow(?=\.svc|$)")
_RELEASE_NAMESPACE = "{{ .Release.Namespace }}"
_SECRETS = {
    "katib-postgres-secrets": '{{ .Values.postgres.existingSecret | default "katib-postgres-secrets" }}',
    "katib-mysql-secrets": '{{ .Values.mysql.existingSecret | default "katib-mysql-secrets" }}',
    "katib-db-secrets": "{{ .Values.external.existingSecret }}",
    "katib-server-token": "{{ .Values.server.tokenSecret }}",
}
_KEPT = {"helm.sh/resource-policy": "keep"}


class Bare(str):
    """Text of a template with a YAML value."""

    __slots__ = ()


class Quoted(str):
    """Text of a template with a string."""

    __slots__ = ()


class Block(str):
    """An expression for the text of a mapping or a list."""

    __slots__ = ()


_BY_KEY = {
    "imagePullPolicy": Quoted("{{ .Values.image.pullPolicy }}"),
    "POSTGRES_PASSWORD": Bare("{{ .Values.postgres.password | quote }}"),
    "MYSQL_ROOT_PASSWORD": Bare("{{ .Values.mysql.password | quote }}"),
}


@dataclass(frozen=True, slots=True)
class Cases:
    """A value that depends on conditions: the first true one decides; `""` is always true."""

    branches: tuple[tuple[str, Any], ...]


@dataclass(slots=True)
class Object:
    """An object of a component.

    Attributes:
        body: Its content.
        conditions: The chart has it if all of them are true, in addition to its component's.
    """

    component: str
    body: Json
    conditions: list[str] = field(default_factory=list)

    def is_meant(self, kind: str, name: str) -> bool:
        """Whether a patch for a kind and name, which are patterns, applies to this object."""
        return bool(re.fullmatch(kind, self.body["kind"]) and re.fullmatch(name, self.body["metadata"]["name"]))


def main() -> int:
    """Write all files; with `--check` compare instead and return 1 if one is stale."""
    wanted = files()
    there = {str(path.relative_to(CHART)) for path in CHART.rglob("*") if path.is_file()} - BY_HAND
    stale = sorted(name for name in there | set(wanted) if name not in there or _text(name) != wanted.get(name))
    for name in stale:
        path = CHART / name
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} does not fit the components; run `make chart`")
        elif name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name])
        else:
            path.unlink()
    return bool(stale) and "--check" in sys.argv[1:]


def _text(name: str) -> str:
    return (CHART / name).read_text()


def files() -> dict[str, str]:
    defaults: dict[str, Any] = {}
    objects = [one for name in CONDITIONS for one in _resources(name)]
    for one in objects:
        _put_values(one, defaults)
    for name in CONDITIONS:
        for patch in _kustomization(name).get("patches", ()):
            _patch(objects, name, patch)
    root = sections(defaults)
    chart = {
        "apiVersion": "v2",
        "name": "katib",
        "description": "Hyperparameter tuning with Katib's API",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": f">={'.'.join(map(str, OLDEST))}.0-0",
    }
    return {
        "Chart.yaml": yaml.safe_dump(chart, sort_keys=False),
        "templates/_configuration.tpl": _configuration(),
        "values.yaml": values_file(root),
        "values.schema.json": json.dumps(schema(root), indent=2) + "\n",
        **{
            f"templates/{component}.yaml": _template(component, list(group))
            for component, group in groupby(objects, lambda one: one.component)
        },
    }


# --- components -------------------------------------------------------------------------------------------------------


def _kustomization(component: str) -> Json:
    found: Json = _read(COMPONENTS / component / "kustomization.yaml")[0]
    return found


def _read(path: Path) -> list[Json]:
    return list(yaml.safe_load_all(path.read_text()))


def _resources(component: str) -> Iterator[Object]:
    kustomization = _kustomization(component)
    for name in kustomization.get("resources", ()):
        for body in _read(COMPONENTS / component / name):
            if body["kind"] == "CustomResourceDefinition":  # words of its schema are no names of ours
                yield Object(component, body)
            else:
                yield Object(component, _with_names(body))
    for generated in kustomization.get("configMapGenerator", ()):
        metadata = {"name": generated["name"], "namespace": kustomization["namespace"]}
        data = {name: Bare('|{{ include "katib.configuration" . | nindent 4 }}') for name in generated["files"]}
        yield Object(
            component, _with_names({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        )


def _configuration() -> str:
    """Return the KatibConfig as a template to include."""
    text = _with_names((COMPONENTS / "config" / "katib-config.yaml").read_text())
    return f'{_head("config")}\n{{{{- define "katib.shippedConfiguration" -}}}}\n{text}{{{{ end }}}}\n'


def _with_names(node: Any, key: str = "") -> Any:
    """Return a part of an object with expressions for namespace, images and Secrets."""
    if isinstance(node, dict):
        return {name: _with_names(value, name) for name, value in node.items()}
    if isinstance(node, list):
        return [_with_names(value, key) for value in node]
    if key in _BY_KEY or isinstance(node, Bare) or not isinstance(node, str):
        return _BY_KEY.get(key, node)
    text = _SECRETS.get(node, node) if key == "name" else node
    text = _CONFIGURED_IMAGE.sub(lambda found: _included("katib.configuredImage", found[1]), text)
    text = _IMAGE.sub(lambda found: _included("katib.image", found[1]), text)
    text = _RELEASE_NAMESPACE if (key, node) == ("namespace", "kubeflow") else _NAMESPACE.sub(_RELEASE_NAMESPACE, text)
    return node if text == node else Quoted(text)


def _included(template: str, image: str) -> str:
    return f'{{{{ include "{template}" (list . "{image}") }}}}'


# --- values -----------------------------------------------------------------------------------------------------------


def _put_values(one: Object, defaults: Json) -> None:
    """Put values into an object, and the replaced ones into the defaults."""
    kind, metadata, spec = one.body["kind"], one.body["metadata"], one.body.get("spec", {})
    if kind == "CustomResourceDefinition":
        metadata["annotations"] = _if(".Values.crds.keep", _KEPT)
        if one.component != "crds":
            one.conditions.append(".Values.optimizationJobs.crd")
    elif kind == "PersistentVolumeClaim" or (kind == "Secret" and metadata["name"] == "katib-db-manager-key"):
        metadata["annotations"] = _if(".Values.data.keep", _KEPT)
    if kind == "PersistentVolumeClaim":
        requests = spec["resources"]["requests"]
        defaults[f"{one.component}.storage"] = requests["storage"]
        requests["storage"] = _value(one.component, "storage")
        spec["storageClassName"] = _given(one.component, "storageClassName", Quoted("{{ . }}"))
    elif kind == "Secret" and "stringData" in one.body:
        metadata["name"] = f"katib-{one.component}-secrets"
        one.conditions.append(f"not .Values.{one.component}.existingSecret")
    elif kind == "Deployment":
        part = PARTS[metadata["name"]]
        pod = spec["template"]["spec"]
        container = pod["containers"][0]
        if part in DATABASES:
            defaults[f"{part}.image"], container["image"] = container["image"], _value(part, "image")
        else:
            defaults[f"{part}.replicas"], spec["replicas"] = spec["replicas"], Bare(_value(part, "replicas"))
        defaults[f"{part}.affinity"] = pod.get("affinity", {})
        defaults[f"{part}.resources"] = container["resources"]
        container["resources"] = Block(f"toYaml .Values.{part}.resources")
        for name in ("nodeSelector", "tolerations", "affinity"):
            pod[name] = _given(part, name, Block("toYaml ."))
        pod["imagePullSecrets"] = _given("image", "pullSecrets", Block("toYaml ."))


def _value(part: str, name: str) -> Quoted:
    return Quoted(f"{{{{ .Values.{part}.{name} }}}}")


def _if(condition: str, value: Any) -> Cases:
    return Cases(((f"if {condition}", value),))


def _given(part: str, name: str, value: Any) -> Cases:
    """Return a field that exists if its value, available as `.`, is not empty."""
    return Cases(((f"with .Values.{part}.{name}", value),))


# --- patches ----------------------------------------------------------------------------------------------------------


def _patch(objects: list[Object], component: str, patch: Json) -> None:
    """Apply a patch of a kustomization to its target objects, under the condition of its component."""
    condition = CONDITIONS[component]
    text = (COMPONENTS / component / patch["path"]).read_text() if "path" in patch else patch["patch"]
    for change in yaml.safe_load_all(text):
        if isinstance(change, list):
            target, merged = patch["target"], _as_merge(change)
        else:
            target, merged = {"kind": change["kind"], "name": re.escape(change["metadata"]["name"])}, change
        meant = [one for one in objects if one.is_meant(target["kind"], target["name"])]
        if not meant:
            raise ValueError(f"{component}: a patch for no object: {target}")
        for one in meant:
            if merged.get("$patch") == "delete":
                one.conditions.append(f"not ({condition})")
            else:
                one.body = _merge(one.body, _with_names(merged), f"if {condition}")


def _as_merge(operations: list[Json]) -> Json:
    """Convert the operations of a JSON patch, which only add, to a merge patch."""
    merged: Json = {}
    for operation in operations:
        *parents, last = operation["path"].strip("/").split("/")
        if operation["op"] != "add":
            raise ValueError(f"operation {operation['op']} of a JSON patch; write a patch that is merged")
        inner = merged
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = operation["value"]
    return merged


def _merge(base: Any, patch: Any, opener: str, name: str = "") -> Any:
    """Merge a conditional patch into a value; new items of lists come first, as in kustomize."""
    if isinstance(patch, dict) and patch.get("$patch") == "replace":
        return Cases(((opener, {key: value for key, value in patch.items() if key != "$patch"}), ("", base)))
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = dict(base)
        for key, value in patch.items():
            merged[key] = _merge(base[key], value, opener, key) if key in base else Cases(((opener, value),))
        return merged
    if isinstance(base, list) and isinstance(patch, list) and name in MERGE_KEYS:
        key = MERGE_KEYS[name]
        places = {item[key]: i for i, item in enumerate(base) if isinstance(item, dict)}
        items, new = list(base), []
        for item in patch:
            place = places.get(item[key])
            if place is None:
                new.append(Cases(((opener, item),)))
            else:
                items[place] = _merge(items[place], item, opener)
        return [*new, *items]
    if isinstance(base, Cases):  # their conditions exclude each other
        return Cases(((opener, patch), *base.branches))
    return base if base == patch else Cases(((opener, patch), ("", base)))


# --- text of templates ------------------------------------------------------------------------------------------------


def _head(component: str) -> str:
    return f"{{{{- /* Generated by `make chart` from manifests/components/{component}. */}}}}"


def _template(component: str, objects: list[Object]) -> str:
    """Return the file of a component; neighbours with the same conditions share them."""
    lines = [_head(component)]
    for conditions, group in groupby(objects, lambda one: [CONDITIONS[component], *one.conditions]):
        given = [part for part in conditions if part]
        if len(given) > 1:
            given = [" ".join(["and", *map("({})".format, given)])]
        lines += [f"{{{{- if {part} }}}}" for part in given]
        lines += [line for one in group for line in ("---", *_lines(one.body, ""))]
        lines += ["{{- end }}" for _ in given]
    return "\n".join(lines) + "\n"


def _lines(node: Json | list[Any], margin: str) -> Iterator[str]:
    """Yield the lines of a mapping or a list; neighbours with the same condition share it."""
    is_list = isinstance(node, list)
    entries = [("-", item) for item in node] if is_list else [(f"{key}:", value) for key, value in node.items()]
    for openers, group in groupby(entries, _openers):
        if not openers:
            for head, value in group:
                yield from _entry(head, value, margin)
            continue
        alike = list(group)
        for i, opener in enumerate(openers):
            yield f"{{{{- {f'else {opener}'.rstrip() if i else opener} }}}}"
            for head, value in alike:
                yield from _entry(head, value.branches[i][1], margin)
        yield "{{- end }}"


def _openers(entry: tuple[str, Any]) -> tuple[str, ...]:
    return tuple(opener for opener, _ in entry[1].branches) if isinstance(entry[1], Cases) else ()


def _entry(head: str, value: Any, margin: str) -> Iterator[str]:
    """Yield the lines of one entry, whose first line starts with its name or a dash."""
    if isinstance(value, Block):
        yield f"{margin}{head} {{{{- {value} | nindent {len(margin) + 2} }}}}"
    elif isinstance(value, str) and "\n" in value:
        text = value if isinstance(value, Quoted) else _literal(value)
        yield f"{margin}{head} |{'' if text.endswith(chr(10)) else '-'}"
        yield from (f"{margin}  {line}".rstrip() for line in text.splitlines())
    elif isinstance(value, list) and all(type(item) in {str, int, bool} and "\n" not in str(item) for item in value):
        yield f"{margin}{head} {_literal(yaml.safe_dump(value, width=sys.maxsize, default_flow_style=True).rstrip())}"
    elif isinstance(value, dict | list) and value:
        inner = list(_lines(value, margin + "  "))
        if head == "-":  # the first line of an item stands beside its dash
            inner[0] = f"{margin}- {inner[0].lstrip()}"
        else:
            yield f"{margin}{head}"
        yield from inner
    else:
        yield f"{margin}{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, Bare):
        return value
    if isinstance(value, Quoted):
        return f'"{value}"'
    return _literal(yaml.safe_dump(value, width=sys.maxsize).removesuffix("\n").removesuffix("\n..."))


def _literal(text: str) -> str:
    """Escape text for a template."""
    return text.replace("{{", '{{ "{{" }}')


if __name__ == "__main__":
    sys.exit(main())
