"""The page `/docs`: the OpenAPI description as plain HTML, without scripts and without anything from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
details { border: 1px solid #8884; border-radius: .4rem; margin: .4rem 0; padding: .4rem .8rem }
summary { cursor: pointer }
code { font-family: ui-monospace, monospace }
.method { display: inline-block; width: 4.5rem; font-weight: 700 }
table { border-collapse: collapse; margin: .6rem 0 }
td, th { text-align: left; padding: .15rem 1rem .15rem 0; vertical-align: top }
"""


def render_page(openapi: dict[str, Any]) -> str:
    """Return the page for an OpenAPI description."""
    info = openapi["info"]
    groups: dict[str, list[str]] = {}
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            tag = operation.get("tags", ["service"])[0]
            groups.setdefault(tag, []).append(_operation(method, path, operation))
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(operations)}" for tag, operations in groups.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('description', ''))}</p>"
        f'<p>For programs: <a href="openapi.json">openapi.json</a></p>{body}</html>'
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(map(_parameter, operation.get("parameters", ())))
    parameters = f"<table><tr><th>parameter<th>in<th>type<th>meaning</tr>{rows}</table>" if rows else ""
    types = ", ".join(operation.get("requestBody", {}).get("content", ()))
    request = f"<p>Body: <code>{escape(types)}</code></p>" if types else ""
    answers = "".join(
        f"<tr><td><code>{escape(str(status))}</code><td>{escape(_contents(response))}"
        f"<td>{escape(response.get('description', ''))}</tr>"
        for status, response in operation["responses"].items()
    )
    return (
        f'<details><summary><span class="method">{escape(method.upper())}</span> <code>{escape(path)}</code>'
        f"</summary><p>{escape(operation.get('description', ''))}</p>{parameters}{request}"
        f"<table><tr><th>answer<th>body<th>when</tr>{answers}</table></details>"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    shape = schema.get("type") or " or ".join(str(s.get("type", "")) for s in schema.get("anyOf", ()))
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code><td>{escape(parameter['in'])}<td>{escape(shape)}"
        f"<td>{escape(parameter.get('description', ''))}</tr>"
    )


def _contents(response: dict[str, Any]) -> str:
    """Return the name of a body's schema, or its media type if it has none."""
    words = []
    for media_type, content in response.get("content", {}).items():
        reference = content.get("schema", {}).get("$ref", "")
        words.append(reference.rpartition("/")[2] or media_type)
    return ", ".join(words)
