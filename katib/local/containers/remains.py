"""Containers of an engine that has ended.

Every container carries a label of its data directory, and while an engine uses a runtime a note in that directory says
which. One engine works in a directory at a time, so what carries the label when an engine opens is left over.
"""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from katib.local.containers.arguments import Program, remove_words
from katib.local.containers.choice import owner_of
from katib.local.containers.runtime import OWNER_LABEL, Runtime

NOTE_FILE = "containers.json"

_SECONDS = 60.0

_log = logging.getLogger(__name__)


@contextmanager
def keep_clean(note: Path, data_directory: Path, runtime: Runtime | None, environ: Mapping[str, str]) -> Iterator[None]:
    """Remove what an earlier engine left, and have the next one remove what this one leaves.

    Args:
        note: Where the runtime is noted.
        data_directory: Of the engine.
        runtime: What this engine uses; None: nothing.
        environ: What the clients are started with.
    """
    _remove_noted(note, data_directory, environ)
    if runtime is not None:
        note.write_text(json.dumps({"program": runtime.program.value, "path": runtime.path}))
    try:
        yield
    finally:
        _remove_noted(note, data_directory, environ)


def _remove_noted(note: Path, data_directory: Path, environ: Mapping[str, str]) -> None:
    try:
        noted = json.loads(note.read_text())
        program, path = Program(noted["program"]), str(noted["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if remove_all(program, path, owner_of(data_directory), environ):
        note.unlink(missing_ok=True)


def remove_all(program: Program, path: str, owner: str, environ: Mapping[str, str]) -> bool:
    """Remove all containers and networks of a data directory; False when the runtime did not do it."""
    label = f"label={OWNER_LABEL}={owner}"
    found = _output([path, "ps", "--all", "--quiet", "--no-trunc", "--filter", label], environ)
    if found is None:
        return False
    names = found.split()
    if names:
        _log.warning("Containers of an earlier engine are removed", extra={"count": len(names)})
    if names and _output([path, *remove_words(program, *names)], environ) is None:
        return False
    networks = _output([path, "network", "ls", "--quiet", "--filter", label], environ)
    if networks and networks.split():
        return _output([path, "network", "rm", *networks.split()], environ) is not None
    return networks is not None


def _output(argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        result = subprocess.run(  # noqa: S603 - the client that an engine of this account used
            argv,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
        if result.returncode == 0:
            return result.stdout
        _log.warning("Containers cannot be removed", extra={"cause": result.stderr.strip()[-200:]})
    return None
