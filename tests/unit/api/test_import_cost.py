"""Start-up is paid on every `katib run`: what the vocabulary does not need, it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("re2", "grpc", "sqlalchemy", "numpy", "fastapi", "optuna", "httpx")
CASES = {
    "types": ("import katib.model.types", (*HEAVY, "yaml", "difflib")),
    "loading": ("import katib.model.loading", HEAVY),
    "a valid experiment": (
        "from tests.support import experiments, gate; gate.admitted(experiments.an_experiment())",
        HEAVY,
    ),
}


@pytest.mark.parametrize(("code", "absent"), CASES.values(), ids=CASES)
def test_nothing_heavy_is_loaded(code: str, absent: tuple[str, ...]) -> None:
    script = f"{code}\nimport sys\nprint([name for name in {absent} if name in sys.modules])"

    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
