"""Paths of a container that lie elsewhere on this machine.

A volume is mounted at `/data` in a container; here it is a directory of the pod. There are no mounts, so the path is
replaced where it is written out: in the command, the arguments and the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_PATH_CHARACTER = r"[\w./-]"


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
