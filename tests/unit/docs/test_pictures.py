"""docs/how-to/ui.md has a section for each figure, and each section is of one that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from katib.figures.catalogue import COMPARISON, FIGURES

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "ui.md").read_text()
CHAPTER = PAGE.partition("## What each picture shows and how to act on it\n")[2].partition("\n## ")[0]
SECTIONS = dict(re.findall(r"(?ms)^### (\S+)\n(.*?)(?=^### |\Z)", CHAPTER))


@pytest.mark.parametrize("name", [kind.name for kind in (*FIGURES, COMPARISON)])
def test_each_figure_has_a_section_that_tells_how_to_act(name: str) -> None:
    assert name in SECTIONS
    assert len(SECTIONS[name].split()) > 30


def test_links_between_sections_lead_somewhere() -> None:
    targets = set(re.findall(r"\]\(#([a-z]+)\)", CHAPTER))

    assert targets <= set(SECTIONS)
