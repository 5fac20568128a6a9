"""The pages of the reference that are generated from the code: commands, experiment fields, REST routes, examples.

`tools.build_docs` writes them when it builds the site. They are not checked in: their content is tested at its source
(the help of commands and the description of the REST interface by golden files, the fields by `make crds`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, structs

from katib.doors.cli.app import COMMANDS, cli
from katib.model.defaults import with_defaults
from katib.model.types import Experiment
from tools.generate_crds import definition

ROOT = Path(__file__).resolve().parent.parent
Json = dict[str, Any]

_PROBES: tuple[tuple[str, Json], ...] = (
    ("", {"collector": {"kind": "StdOut"}}),
    ("`File`: ", {"collector": {"kind": "File"}}),
    ("`TensorFlowEvent`: ", {"collector": {"kind": "TensorFlowEvent"}}),
    ("`PrometheusMetric`: ", {"collector": {"kind": "PrometheusMetric"}}),
)
"""Collectors with different defaults, each with the text before its defaults."""
_OF_THE_PROBE = frozenset({"spec.objective.metricStrategies[].name"})
"""Values derived from other fields of the experiment that is used to find the defaults."""
_DEPENDING = {
    "spec.objective.metricStrategies[].value": "to minimize: ",
    "spec.trialTemplate.successCondition": "of a Job: ",
    "spec.trialTemplate.failureCondition": "of a Job: ",
}
"""Defaults that depend on the experiment, with the text before the one of the experiment used here."""

_ABOUT_FIELDS = (
    "`[]` stands for each element of a list. Rules beyond the type are in [Errors](errors.md); what algorithms read "
    "from `algorithmSettings` is in [Algorithms](algorithms.md). Fields without a default are empty when they are left "
    "out. `kubectl explain experiment.spec` prints the same descriptions."
)
_ABOUT_ROUTES = (
    "Generated from the OpenAPI description, which a server offers at `/openapi.json`. [REST](rest.md) explains "
    "authentication, errors and event streams."
)


def pages() -> dict[str, str]:
    """Return all generated pages, by their path below `docs/`."""
    return {
        "reference/commands.md": commands_page(),
        "reference/experiment.md": experiment_page(),
        "reference/rest-routes.md": rest_page(json.loads((ROOT / "tests/golden/openapi.json").read_text())),
        **example_pages(),
    }


# --- commands ---------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Return every command with its arguments, options and examples."""
    context = click.Context(cli, info_name="katib")
    parts = [
        "# Commands",
        f"{_prose(cli.help or '')} `katib COMMAND --help` prints what is on this page.",
        "The exit code is 0 after success, 1 after a failure, 2 after wrong input and 130 after Ctrl-C.",
    ]
    for section, entries in COMMANDS.items():
        parts.append(f"## {section}")
        for name in entries:
            command = cli.get_command(context, name)
            assert command is not None
            parts += _command(command, click.Context(command, parent=context, info_name=name), "###")
    return "\n\n".join(parts) + "\n"


def _command(command: click.Command, context: click.Context, heading: str) -> Iterator[str]:
    yield f"{heading} {context.command_path}"
    help_text = (command.help or command.short_help or "").partition("\f")[0]
    yield from map(_prose, re.split(r"\n\s*\n", help_text.strip()))
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [
        (f"`{cell(name)}`", cell(_prose(text)))
        for name, text in filter(None, records)
        if text and not name.endswith("--help")
    ]
    if rows:
        yield table(("option", "meaning"), rows)
    if command.epilog:
        yield _epilog(command.epilog)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _command(inner, click.Context(inner, parent=context, info_name=name), f"{heading}#")


def _epilog(text: str) -> str:
    lines = text.replace("\b", "").strip("\n").splitlines()
    if lines[0].strip().endswith(":"):
        body = "\n".join(line.removeprefix("  ") for line in lines[1:])
        return f"{lines[0].strip()}\n\n```text\n{body}\n```"
    return "```text\n" + "\n".join(lines) + "\n```"


def _prose(text: str) -> str:
    """Convert the text of a help message to Markdown: its words are escaped; code stays code."""
    if text.startswith("\b"):
        return "```text\n" + "\n".join(line.strip() for line in text.strip("\b\n").splitlines()) + "\n```"
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    """Convert text without code: options become code, and formatting characters are escaped."""
    parts = re.split(r"((?<![\w-])--?[a-zA-Z][\w-]*)", text)
    escaped = (re.sub(r"([\\*_<>\[\]{}$#])", r"\\\1", part) for part in parts)
    return "".join(f"`{parts[n]}`" if n % 2 else part for n, part in enumerate(escaped))


# --- fields of an experiment ------------------------------------------------------------------------------------------


def experiment_page() -> str:
    """Return every field of an Experiment: its type, its default and its meaning."""
    schema = definition(Experiment, [])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    parts = ["# Fields of an experiment", _ABOUT_FIELDS, *_section("spec", schema["spec"], defaults())]
    parts += _section("status", schema["status"], {})
    return "\n\n".join(parts) + "\n"


def _section(path: str, schema: Json, known: dict[str, str]) -> Iterator[str]:
    """Yield the table of a mapping's fields, then a section for each nested mapping."""
    fields = schema["properties"]
    yield f"## {path}"
    yield schema.get("description", "")
    yield _fields({f"{path}.{name}": field for name, field in fields.items()}, path, known)
    for name, field in fields.items():
        inner = dict(_walk(f"{path}.{name}", field))
        if inner:
            yield f"### {path}.{name}"
            yield field.get("description", "")
            yield _fields(inner, f"{path}.{name}", known)


def _walk(path: str, schema: Json) -> Iterator[tuple[str, Json]]:
    """Yield every field below a path with its schema, parents first."""
    steps = path
    while schema.get("type") == "array":
        schema, steps = schema["items"], f"{steps}[]"
    for name, field in schema.get("properties", {}).items():
        yield f"{steps}.{name}", field
        yield from _walk(f"{steps}.{name}", field)


def _fields(fields: dict[str, Json], parent: str, known: dict[str, str]) -> str:
    head = ("field", "type", "default", "meaning") if known else ("field", "type", "meaning")
    rows = []
    for path, schema in fields.items():
        default = (known.get(path, ""),) if known else ()
        shown = path.removeprefix(parent).removeprefix(".")
        rows.append((f"`{shown}`", _type(schema), *default, cell(schema.get("description", ""))))
    return table(head, rows)


def _type(schema: Json) -> str:
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {_type(schema['additionalProperties'])}"
    return {None: "text or number", "string": "text", "object": "mapping", "integer": "whole number"}.get(kind, kind)


def defaults() -> dict[str, str]:
    """Return the default of each field that has one, by its path: its value in an experiment that omits it."""
    found: dict[str, list[str]] = {}
    for label, collector in _PROBES:
        given = Experiment.decode(_probe(collector))
        for path, value in _filled("spec", given.spec, with_defaults(given).spec):
            if path in _OF_THE_PROBE:
                continue
            text = _DEPENDING.get(path, "") + f"`{cell(_yaml(value))}`"
            seen = found.setdefault(path, [])
            if text not in seen and f"{label}{text}" not in seen:
                seen.append(text if not label else f"{label}{text}")
    return {path: "; ".join(texts) for path, texts in found.items()}


def _yaml(value: Any) -> str:
    """Format a plain value, or a mapping of plain values, as YAML."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_yaml(inner)}' for name, inner in value.items())}}}"
    return str(value)


def _probe(collector: Json) -> Json:
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": []}}}}
    without_collector = collector["collector"]["kind"] == "StdOut"
    spec = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}],
        "trialTemplate": {"trialSpec": job},
        **({} if without_collector else {"metricsCollectorSpec": collector}),
    }
    return {"metadata": {"name": "probe"}, "spec": spec}


def _filled(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any]]:
    """Yield the plain values that are in `after` but not in `before`, by path."""
    if isinstance(after, Struct):
        for field in structs.fields(type(after)):
            old = getattr(before, field.name) if isinstance(before, type(after)) else None
            yield from _filled(f"{path}.{field.encode_name}", old, getattr(after, field.name))
    elif isinstance(after, tuple):
        olds = before if isinstance(before, tuple) else ()
        for number, element in enumerate(after):
            yield from _filled(f"{path}[]", olds[number] if number < len(olds) else None, element)
    elif after not in (None, "", {}, False) and after != before:
        yield path, after


# --- REST -------------------------------------------------------------------------------------------------------------


_LISTS = "Items_"
"""Prefix of the names of types that only wrap a list."""


def rest_page(description: Json) -> str:
    """Return every route with its parameters, body and answers, and every type that they name."""
    description = _with_lists(description, description["components"]["schemas"])
    schemas = {name: s for name, s in description["components"]["schemas"].items() if not name.startswith(_LISTS)}
    parts = [
        "# REST routes and types",
        _ABOUT_ROUTES,
        "## Routes",
    ]
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            parts += _route(f"{method.upper()} {path}", route)
    parts.append("## Types")
    for name, schema in sorted(schemas.items()):
        parts += _schema(name, schema)
    return "\n\n".join(parts) + "\n"


def _with_lists(part: Any, schemas: Json) -> Any:
    """Replace references to types that only wrap a list by lists."""
    if isinstance(part, list):
        return [_with_lists(element, schemas) for element in part]
    if not isinstance(part, dict):
        return part
    name = str(part.get("$ref", "")).rpartition("/")[2]
    if name.startswith(_LISTS):
        return schemas[name]
    return {key: _with_lists(value, schemas) for key, value in part.items()}


def _route(title: str, route: Json) -> Iterator[str]:
    yield f"### `{title}`"
    yield _prose(route.get("description") or route.get("summary", ""))
    rows = [(f"`{p['name']}`", p["in"], *_row(p["schema"] | p)) for p in route.get("parameters", ())]
    if rows:
        yield table(("parameter", "in", "type", "default", "meaning"), rows)
    bodies = route.get("requestBody", {}).get("content", {})
    lines = [f"- body: {_json_type(content.get('schema', {}))} as `{kind}`" for kind, content in bodies.items()]
    for status, answer in route["responses"].items():
        kinds = answer.get("content", {})
        forms = "; ".join(f"{_json_type(content.get('schema', {}))} as `{kind}`" for kind, content in kinds.items())
        lines.append(f"- {status}: {_prose(answer['description'])}{f' ({forms})' if forms else ''}")
    yield "\n".join(lines)


def _schema(name: str, schema: Json) -> Iterator[str]:
    yield f"({_anchor(name)})=\n### {name}"
    if schema.get("description"):
        yield _prose(schema["description"])
    rows = [(f"`{field}`", *_row(content)) for field, content in schema.get("properties", {}).items()]
    yield table(("field", "type", "default", "meaning"), rows) if rows else _json_type(schema)


def _row(schema: Json) -> tuple[str, str, str]:
    default = schema.get("default")
    shown = "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"
    return _json_type(schema), shown, cell(_prose(schema.get("description", "")))


def _anchor(name: str) -> str:
    return f"rest-type-{name.lower()}"


def _json_type(schema: Json) -> str:
    """Return a JSON schema in a few words, with links to the types in it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{_anchor(name)})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(map(_json_type, schema[key])))
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values:
        return ", ".join(f"`{value}`" for value in values)
    if schema.get("title") == "Items" and "properties" in schema:
        return f"`items`: {_json_type(schema['properties']['items'])}"
    if schema.get("type") == "array":
        return f"list of {_json_type(schema.get('items', {}))}"
    further = schema.get("additionalProperties")
    return f"mapping to {_json_type(further)}" if isinstance(further, dict) and further else schema.get("type", "any")


# --- examples ---------------------------------------------------------------------------------------------------------

_LANGUAGES = {".py": "python", ".yaml": "yaml", ".md": "markdown"}


def example_pages() -> dict[str, str]:
    """Return a page for each example with its files, and a list of them."""
    folders = sorted({file.parent for file in (ROOT / "examples").rglob("*.py")} | {ROOT / "examples" / "kubernetes"})
    found = {folder.relative_to(ROOT).as_posix(): _example(folder) for folder in folders}
    names = [name.removeprefix("examples/") for name in found]
    entries = "\n".join(f"{name.replace('/', ': ')} <{name}>" for name in names)
    listed = (
        "# Examples\n\nEvery example is in the repository, in the folder `examples`, and runs as it is: "
        "`katib run examples/NAME/experiment.yaml`.\n\n```{toctree}\n:maxdepth: 1\n\n" + entries + "\n```\n"
    )
    return {"examples/index.md": listed, **{f"{name}.md": text for name, text in found.items()}}


def _example(folder: Path) -> str:
    name = folder.relative_to(ROOT / "examples").as_posix()
    files = sorted(f for f in folder.iterdir() if f.suffix in _LANGUAGES and "_pb2" not in f.name)
    parts = [f"# Example: {name}"]
    readme = folder / "README.md"
    if readme.exists():
        title, _, rest = readme.read_text().partition("\n")
        parts = [title, rest.strip()]
    for file in files:
        if file != readme:
            parts += [f"## {file.name}", f"````{_LANGUAGES[file.suffix]}\n{file.read_text().rstrip()}\n````"]
    return "\n\n".join(parts) + "\n"


# --- Markdown ---------------------------------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [tuple(head), *map(tuple, rows)]
    lines.insert(1, ("---",) * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
