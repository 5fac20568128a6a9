"""The code blocks of the documentation, and what their marks say should be done with them.

A mark is an HTML comment on the line before a block, which readers do not see:

    <!-- file: train.py -->            the block is a file that later blocks of the page use
    <!-- run -->                       the default tests run it, in a folder that all blocks of the page share
    <!-- run: slow -->                 `make test-slow` runs it
    <!-- run after: x = 1 -->          as `run`, in Python after these statements; `run slow after:` likewise
    <!-- not run: REASON -->           only its form is checked

Blocks of Python and of the shell need a mark. YAML needs none, because it is checked as part of an experiment or of a
configuration file; a block of YAML with the mark `not run` is only parsed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli import environment

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md")))

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?(?P<indent> *)```(?P<language>[\w{}-]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"(?P<verb>file|run|run slow after|run after|not run)(?:: (?P<rest>.+))?")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page."""

    page: Path
    line: int
    """Of its first line of code."""
    language: str
    mark: str
    """What the comment before it says, empty when there is none."""
    text: str

    def __str__(self) -> str:
        """Return where it is, as the id of a test."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """Name of the file that it is, empty when it is none."""
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else ""

    @property
    def reason(self) -> str:
        """Why it is not run, empty when it is."""
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else ""

    @property
    def is_run(self) -> bool:
        """Whether a test runs it."""
        return self.mark == "run" or self.mark.startswith(("run: slow", "run after: ", "run slow after: "))

    @property
    def is_slow(self) -> bool:
        """Whether it is run by `make test-slow` only."""
        return self.mark.startswith(("run: slow", "run slow after: "))

    @property
    def prelude(self) -> str:
        """Statements before it, empty when there are none."""
        return self.mark.partition(" after: ")[2]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("body")) + 1
        indent = match["indent"]
        body = "".join(part.removeprefix(indent) for part in match["body"].splitlines(keepends=True))
        found.append(Block(page, line, match["language"], match["mark"] or "", body))
    return found


def is_mark(text: str) -> bool:
    """Return whether a comment is one of the marks above."""
    return _MARK.fullmatch(text) is not None


def run_page(page: Path, folder: Path, *, slow: bool, programs: Path = Path(sys.executable).parent) -> list[str]:
    """Write the files of a page and run its blocks in a folder, in their order.

    Args:
        page: The page.
        folder: Empty.
        slow: Whether slow blocks are run, too.
        programs: Folder of `python` and `katib`.

    Returns:
        For each block that failed, where it is and what it printed.
    """
    failed = []
    for block in blocks_of(page):
        if block.file:
            (folder / block.file).write_text(block.text)
        elif block.is_run and (slow or not block.is_slow):
            done = _run(block, folder, programs)
            if done.returncode != 0:
                failed.append(f"{block} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return failed


def _run(block: Block, folder: Path, programs: Path) -> subprocess.CompletedProcess[str]:
    if block.language == "python":
        script = folder / f"block_{block.line}.py"
        script.write_text(f"{block.prelude}\n{block.text}")
        command = [str(programs / "python"), str(script)]
    else:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    path = f"{programs}:{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=folder, env=environment(PATH=path), capture_output=True, text=True, timeout=180, check=False
    )
