"""Write the files derived from the code (run by `make golden`), or with `--check` list the stale ones.

A golden file shows a reviewer every change of the external interface: REST, the command line, and messages about wrong
files. The page of algorithms and the stub of the figures are written here, too.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent


def openapi() -> str:
    """Return the description of the REST interface."""
    sys.path.insert(0, str(ROOT))
    from katib.doors.rest.app import create_app
    from tests.support.tuning import MemoryTuningService

    description = create_app(MemoryTuningService()).openapi()
    description["info"]["version"] = "any"
    return json.dumps(description, indent=2, sort_keys=True) + "\n"


def cli_help() -> str:
    from katib.doors.cli.app import COMMANDS

    names = [name for section in COMMANDS.values() for name in section]
    return "\n".join(_help(words) for words in ([], *([name] for name in names)))


def _help(words: list[str]) -> str:
    from katib.doors.cli import main

    text = io.StringIO()
    with redirect_stdout(text):
        main([*words, "--help"])
    return f"$ {' '.join(['katib', *words, '--help'])}\n{text.getvalue()}"


def wrong_files() -> str:
    """Return the output of `katib validate` for files with one of many mistakes each."""
    sys.path.insert(0, str(ROOT))
    from tests.support.cli import katib_here
    from tests.support.wrong_files import WRONG_FILES

    lines = []
    with TemporaryDirectory() as directory:
        for name, text in WRONG_FILES.items():
            Path(directory, "x.yaml").write_text(text)
            lines.append(f"# {name}\n{katib_here('validate', 'x.yaml', cwd=Path(directory)).stderr}")
    return "\n".join(lines)


def algorithms() -> str:
    from tools.algorithm_page import PAGE, updated

    return updated(PAGE.read_text())


def plots() -> str:
    from tools.plot_functions import source

    return source()


FILES: dict[str, Callable[[], str]] = {
    "tests/golden/openapi.json": openapi,
    "tests/golden/cli_help.txt": cli_help,
    "tests/golden/wrong_files.txt": wrong_files,
    "docs/reference/algorithms.md": algorithms,
    "katib/sdk/plots.pyi": plots,
}


def stale() -> Iterator[tuple[Path, str]]:
    """Yield each stale file, with its expected content."""
    os.environ["COLUMNS"] = "100"
    for name, make in FILES.items():
        path, text = ROOT / name, make()
        if not path.is_file() or path.read_text() != text:
            yield path, text


def write_shown() -> int:
    """Write the golden files beside tests (`tests/support/golden.py`), and return the exit code of these tests."""
    tests = [str(path.with_suffix(".py")) for path in sorted((ROOT / "tests").rglob("*.golden"))]
    environment = os.environ | {"GOLDEN": "write"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], env=environment, check=False)  # noqa: S603 - our own arguments
    return done.returncode


def main() -> int:
    """Write or check; return 1 if a check found something."""
    outdated = list(stale())
    for path, text in outdated:
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is out of date; run `make golden` and review the difference")
        else:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
    if "--check" not in sys.argv:
        return write_shown()
    return 1 if outdated and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
