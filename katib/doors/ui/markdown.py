"""Users' notes as Markdown: HTML in them is text, and a page loads nothing that they name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

_HIGHEST = 3
"""Level of the highest heading: those of the page itself stand above."""


def markdown(text: str) -> Markup:
    """Return Markdown (CommonMark with tables and strikethrough; a line break is kept) as HTML.

    A link with another scheme than http, https and mailto stays text. An image becomes a link to it: a page loads
    pictures only from its own server.
    """
    return Markup(_parser().render(text))  # noqa: S704 - made by the renderer, which escapes the text


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")
    made.add_render_rule("link_open", _link)
    for rule in ("heading_open", "heading_close"):
        made.add_render_rule(rule, _heading)
    made.validateLink = lambda url: url.partition(":")[0].lower() in {"http", "https", "mailto"}  # type: ignore[method-assign]
    return made


def _link(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, _environment: Any) -> str:
    tokens[index].attrs |= {"rel": "noopener noreferrer nofollow", "target": "_blank"}
    return renderer.renderToken(tokens, index, options, _environment)


def _heading(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: Any, environment: Any) -> str:
    tokens[index].tag = f"h{min(int(tokens[index].tag[1:]) + _HIGHEST - 1, 6)}"
    return renderer.renderToken(tokens, index, options, environment)
