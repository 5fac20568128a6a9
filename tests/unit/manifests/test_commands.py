"""What manifests run is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

MANIFESTS = Path(__file__).parents[3] / "manifests"


def test_every_module_that_a_manifest_runs_exists() -> None:
    texts = [path.read_text() for path in MANIFESTS.rglob("*.yaml")]
    modules = {name for text in texts for name in re.findall(r"-m,\s*([\w.]+)", text)}

    assert modules
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []
