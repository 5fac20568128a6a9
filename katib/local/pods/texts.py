"""Texts of a container that mean something else on this machine: references to variables, and paths.

`$(VAR)` becomes the value of VAR by the rules of Kubernetes: an unknown VAR stays as written; `$$` is one dollar sign,
so `$$(VAR)` is the text `$(VAR)`. Everything else, `${VAR}` and `$VAR` above all, belongs to the user's shell.

A volume is mounted at `/data` in a container; here it is a directory of the pod. There are no mounts, so the path is
replaced where it is written out: in the command, the arguments and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_PATH_CHARACTER = r"[\w./-]"


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with its references replaced."""

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group(0))

    return _REFERENCE.sub(replacement, text)


class Rewriter:
    """Replaces absolute path prefixes by directories of this machine, the longest prefix first."""

    def __init__(self, directories: Mapping[str, Path]) -> None:
        self._directories = {_normal(prefix): str(directory) for prefix, directory in directories.items()}
        prefixes = sorted(self._directories, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, prefixes))
        # A prefix counts where a path begins and where one of its components ends: not inside of another path.
        self._pattern = re.compile(rf"(?<!{_PATH_CHARACTER})({alternatives})(?=/|(?!{_PATH_CHARACTER}))")

    def rewrite(self, text: str) -> str:
        """Return the text with the paths of this machine."""
        if not self._directories:
            return text
        return self._pattern.sub(lambda match: self._directories[match.group(1)], text)


def _normal(prefix: str) -> str:
    return prefix.rstrip("/") or "/"
