"""Packages that import their modules on first use."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [path for path in sorted(ROOT.glob("katib/**/__init__.py")) if "lazy_names(" in path.read_text()]


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: path.parent.name)
def test_every_name_of_the_page_has_its_module(path: Path) -> None:
    if path.parent.name == "callbacks":
        pytest.skip("its libraries are rarely installed")
    package = import_module(".".join(path.parent.relative_to(ROOT).parts))
    (typed,) = (
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.If) and node.body and not isinstance(node.test, ast.UnaryOp)
    )
    names = [
        name.asname or name.name
        for node in typed.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package.__name__)
        for name in node.names
    ]

    assert names
    assert [name for name in names if not hasattr(package, name)] == []
