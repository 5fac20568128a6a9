"""The files of a program that an experiment runs: which they are, and whether they have changed since.

Files are those that the commands of the template name, and the local Python modules that a script among them imports.
For a command of Python, the installed packages count as well: a module that was missing may have been installed. This
is a comparison for a user who edits and runs again, not a build system: what a program reads by other ways is unseen.
A file that trials write, such as a log, is not part of the program.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from katib.model.files.directories import SHELL_SUFFIXES
from katib.model.names import PROGRAM_ANNOTATION
from katib.model.types import Experiment
from katib.service.tuning.submission import workspace_of

PACKAGES = "the installed packages"
"""Stands beside the names of files."""

_MOST_FILES = 200
_MOST_BYTES = 4 << 20
"""Of a file that is read: a larger one is data, or a compiled program."""

_WRITTEN = "written by trials"
"""In place of the hash of such a file."""
_WRITTEN_BY_USERS = frozenset({".cfg", ".conf", ".gin", ".ini", ".jl", ".js", ".py", ".R", ".toml", ".yaml", ".yml"})
"""Endings of files that count as program whenever they change, beside those of scripts of a shell."""

_COMMAND_FIELDS = ("command", "args")
_DIGEST_SIZE = 8


def program_of(template: Any, workspace: Path, ran: tuple[float, float] | None = None) -> dict[str, str]:
    """Return a hash of each file of a program, by its path as the command names it.

    Args:
        template: The object that trials run as, with placeholders in it.
        workspace: Where relative paths of its commands start.
        ran: When its trials ran, in seconds of the epoch: a file that changed in between was written by them, unless
            it is a script or a configuration.
    """
    found: dict[str, str] = {}
    for directory, words in _commands(template, workspace):
        for path in _named_files(directory, words):
            for file in _with_imports(path):
                if len(found) < _MOST_FILES and (digest := _digest(file)):
                    name = file.relative_to(directory) if file.is_relative_to(directory) else file
                    found[str(name)] = _WRITTEN if ran and _changed_within(file, *ran) else digest
        if found and any(Path(word).name.startswith("python") for word in words):
            found[PACKAGES] = _state_of_packages()
    return found


def program_annotations(template: Any, experiment: Experiment) -> Mapping[str, str]:
    """Return the annotation that keeps what `program_of` says at submission; none where no file is named."""
    files = program_of(template, workspace_of(experiment) or Path.cwd())
    return {PROGRAM_ANNOTATION: json.dumps(files, sort_keys=True)} if files else {}


def program_now(experiment: Experiment) -> dict[str, str]:
    """Return what `program_of` says of a stored experiment now."""
    template = experiment.spec.trial_template
    source = template.trial_spec if template is not None else None
    status = experiment.status
    started, ended = status.start_time, status.completion_time
    ran = (started.timestamp(), ended.timestamp() + 1 if ended else math.inf) if started else None
    return program_of(source or {}, workspace_of(experiment) or Path.cwd(), ran)


def changed_files(kept: str, now: Mapping[str, str]) -> list[str]:
    """Return the names of files that differ from those at submission.

    Args:
        kept: The annotation; empty for an experiment without one.
        now: What `program_of` says now.
    """
    try:
        before = json.loads(kept) if kept else {}
    except ValueError:
        return []
    if not isinstance(before, dict) or not before:
        return []
    names = dict.fromkeys([*now, *before])
    return [name for name in names if now.get(name) not in (before.get(name), _WRITTEN)]


def _commands(template: Any, directory: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the working directory and the words of every command in an object."""
    if isinstance(template, list):
        for element in template:
            yield from _commands(element, directory)
    if not isinstance(template, dict):
        return
    given = [template.get(field) for field in _COMMAND_FIELDS]
    words = [str(word) for command in given if isinstance(command, list) for word in command]
    if words:
        yield directory / str(template.get("workingDir") or ""), words
    for name, value in template.items():
        if name not in _COMMAND_FIELDS:
            yield from _commands(value, directory)


def _named_files(directory: Path, words: Iterable[str]) -> Iterator[Path]:
    """Yield the files that words name; a word with blanks is a line of a shell."""
    previous = ""
    for word in _split(words):
        for name in (word, word.partition("=")[2]):
            path = directory / name
            if name and _is_text(path):
                yield path
        if previous == "-m" and word.replace(".", "").isidentifier():
            yield from _module_files(directory, word)
        previous = word


def _split(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if not any(character.isspace() for character in word):
            yield word
            continue
        try:
            yield from shlex.split(word)
        except ValueError:  # an open quote
            yield from word.split()


def _with_imports(path: Path) -> list[Path]:
    """Return a file, and the modules beside it that it imports if it is a script of Python."""
    found, queue = {path: None}, [path]
    while queue and len(found) < _MOST_FILES:
        file = queue.pop()
        if file.suffix != ".py":
            continue
        for name in _imported(file):
            for module in _module_files(path.parent, name):
                if module not in found:
                    found[module] = None
                    queue.append(module)
    return list(found)


def _imported(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}" if node.module else alias.name) for alias in node.names)
            if node.module:
                yield node.module


def _module_files(directory: Path, name: str) -> Iterator[Path]:
    path = directory.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py", path / "__main__.py"):
        if _is_text(candidate):
            yield candidate


def _is_text(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return False
        with path.open("rb") as file:
            return b"\0" not in file.read(1024)
    except (OSError, ValueError):  # ValueError: a null byte in the name
        return False


def _changed_within(path: Path, start: float, end: float) -> bool:
    if path.suffix in _WRITTEN_BY_USERS | SHELL_SUFFIXES:
        return False
    try:
        return start <= path.stat().st_mtime <= end
    except OSError:
        return False


def _digest(path: Path) -> str:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=_DIGEST_SIZE).hexdigest()
    except OSError:
        return ""


def _state_of_packages() -> str:
    """Return what differs when a package is installed where trials run Python, or removed there."""
    prefix = Path(os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or sys.prefix)
    names = []
    for directory in prefix.glob("lib/python3*/site-packages"):
        try:
            names += sorted(path.name for path in directory.iterdir() if path.suffix == ".dist-info")
        except OSError:
            continue
    return hashlib.blake2b("\n".join(names).encode(), digest_size=_DIGEST_SIZE).hexdigest()
