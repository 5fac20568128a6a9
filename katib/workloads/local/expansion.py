"""`$(VAR)` references in commands, arguments and environment values, by the rules of Kubernetes.

`$(VAR)` becomes the value of VAR; an unknown VAR stays as written; `$$` is one dollar sign, so `$$(VAR)` is the text
`$(VAR)`. Everything else, `${VAR}` and `$VAR` above all, belongs to the user's shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with its references replaced."""

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group(0))

    return _REFERENCE.sub(replacement, text)
