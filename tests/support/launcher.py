"""The launcher of trials' containers, compiled from its source as in its Dockerfile."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

IMAGE = Path(__file__).parents[2] / "images" / "metrics-collector"


@cache
def launcher_binary() -> str:
    """Return the path of the program; skips the test without a compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is missing, which compiles the launcher")
    target = Path(tempfile.mkdtemp(prefix="katib-launcher-")) / "launch"
    compile_static(IMAGE / "launch.c", target)
    return str(target)


def compile_static(source: Path, target: Path) -> None:
    """Compile a program of one file with the options of the Dockerfile."""
    found = re.search(r"gcc (.*) -o", (IMAGE / "Dockerfile").read_text())
    assert found is not None
    done = subprocess.run(
        ["gcc", *found[1].split(), "-o", str(target), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
