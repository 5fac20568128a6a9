"""What the containers of all trials inherit from the engine: its environment, and a `python` that is there.

With a virtual environment or conda active, the user has chosen a Python, and everything stays as it is. Otherwise
`python` and `python3` mean the Python that runs katib, which is the one that the user installed things for; that of the
PATH may be another one or, as on Debian, none. What is the engine's own business is left out.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from katib.rpc import OUR_VERBOSITY_VARIABLE, VERBOSITY_VARIABLE

_CHOSEN = ("VIRTUAL_ENV", "CONDA_PREFIX")
_OWN = frozenset(
    {
        "KATIB_TOKEN",
        "KATIB_DB_MANAGER_ADDRESS",
        "KATIB_DB_MANAGER_TOKEN",
        "KATIB_DB_MANAGER_CA",
        "KUBEFLOW_TRAINER_SERVER_URL",
        "KUBEFLOW_TRAINER_SERVER_TOKEN",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT",
    }
)
"""The token of the server opens it to everybody who has it; a trial has no use for it. The others say where to report,
and are those of another trial when the engine itself runs in one."""

_NAMES = ("python", "python3")


def provided_commands(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the commands that mean the Python which runs katib; none where the user has chosen another."""
    return frozenset() if not sys.executable or any(map(environ.get, _CHOSEN)) else frozenset(_NAMES)


def inherited_environment(environ: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the environment that containers start from.

    Args:
        environ: Of the engine.
        directory: Where links to this Python may be made.
    """
    ours = {VERBOSITY_VARIABLE, OUR_VERBOSITY_VARIABLE} if OUR_VERBOSITY_VARIABLE in environ else set()
    environment = {name: value for name, value in environ.items() if name not in _OWN | ours}
    if not provided_commands(environ):
        return environment
    first = Path(sys.executable).parent if sys.prefix != sys.base_prefix else _linked(directory, sys.executable)
    path = environment.get("PATH", os.defpath)
    return environment | {"PATH": f"{first}{os.pathsep}{path}"}


def _linked(directory: Path, python: str) -> Path:
    """Return a directory that holds this Python and nothing else.

    Its own directory, often `/usr/bin`, would bring everything that is in it before what the user prefers. The Python
    of a virtual environment has a directory of its own, and finds its modules only under its own name.
    """
    with contextlib.suppress(OSError):  # without the links the PATH decides, as everywhere
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _NAMES:
            link, draft = directory / name, directory / f"{name}.new"
            draft.unlink(missing_ok=True)
            draft.symlink_to(python)
            draft.replace(link)
    return directory
