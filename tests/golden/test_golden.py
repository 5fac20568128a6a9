"""What the outside sees changes only together with its golden file, so that review reads every change."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_golden_files_are_what_the_code_says() -> None:
    """In a process of its own: terminal width and imports of other tests must not matter."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.golden", "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
