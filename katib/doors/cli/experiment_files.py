"""Suggestions of experiment files that the user may have meant."""

from __future__ import annotations

import difflib
from pathlib import Path

from katib.model.files.directories import folders_near

SUFFIXES = (".yaml", ".yml", ".json")
_LOOKED_AT_FILES, _LOOKED_AT_BYTES = 200, 65_536
_SHOWN = 3


def next_step(directory: Path, command: str, meant: str = "") -> str:
    """Return the next command to type, with an existing file; empty if there is none.

    Args:
        directory: The directory to search; if nothing is found, its parents follow.
        command: The command, such as `katib run`.
        meant: The name of the missing file.
    """
    found = experiment_files(directory) or [p for near in folders_near(directory) for p in experiment_files(near)]
    near = difflib.get_close_matches(Path(meant).name, [path.name for path in found], n=1) if meant else []
    chosen = [path for path in found if path.name in near] or found
    return "try " + " or ".join(f"`{command} {path}`" for path in chosen[:_SHOWN]) if chosen else ""


def experiment_files(directory: Path) -> list[Path]:
    try:
        files = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)
    except OSError:
        return []
    return [path for path in files[:_LOOKED_AT_FILES] if _holds_experiment(path)]


def _holds_experiment(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            text = file.read(_LOOKED_AT_BYTES).decode(errors="replace").replace('"', "")
    except OSError:
        return False
    return any(line.strip(" ,-") == "kind: Experiment" for line in text.splitlines())
