"""Containers of an engine that has ended.

Every container carries a label of its data directory, and while an engine uses a runtime a note in that directory says
which. One engine works in a directory at a time, so what carries the label when an engine opens is left over.

Containers need not wait for that: the guard of an engine that was killed runs `removal_script`. Another engine may have
opened by then, so the script goes by the label of its own engine.
"""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from katib.local.containers.arguments import Program, list_words, remove_words
from katib.local.containers.choice import owner_of
from katib.local.containers.runtime import ENGINE_LABEL, OWNER_LABEL, Runtime

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
        _remove_noted(note, data_directory, environ, level=logging.DEBUG)  # they are ours, and on their way out


def _remove_noted(
    note: Path, data_directory: Path, environ: Mapping[str, str], *, level: int = logging.WARNING
) -> None:
    try:
        noted = json.loads(note.read_text())
        program, path = Program(noted["program"]), str(noted["path"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if remove_all(program, path, owner_of(data_directory), environ, level=level):
        note.unlink(missing_ok=True)


def remove_all(
    program: Program, path: str, owner: str, environ: Mapping[str, str], *, level: int = logging.WARNING
) -> bool:
    """Remove all containers and networks of a data directory; False when the runtime did not do it.

    Args:
        program: Whose options these are.
        path: Of its client.
        owner: Of the label of a data directory.
        environ: What the client is started with.
        level: How loudly to say that there were some.
    """
    containers = [path, *list_words("ps", f"{OWNER_LABEL}={owner}")], [path, *remove_words(program)]
    networks = [path, *list_words("network", f"{OWNER_LABEL}={owner}")], [path, "network", "rm"]
    return _removed(*containers, environ, level) and _removed(*networks, environ, level)


def removal_script(program: Program, path: str, engine_id: str) -> str:
    """Return a shell script that removes all containers and networks of one engine.

    A client that was killed may have asked for a container that appears a moment later, so it looks twice.
    """
    label = f"{ENGINE_LABEL}={engine_id}"
    containers = _script_of([path, *list_words("ps", label)], [path, *remove_words(program)])
    networks = _script_of([path, *list_words("network", label)], [path, "network", "rm"])
    return f"{containers}; sleep 1; {containers}; {networks}"


def _script_of(find: Sequence[str], remove: Sequence[str]) -> str:
    return f'found=$({shlex.join(find)}) && [ -n "$found" ] && {shlex.join(remove)} $found'


def _removed(find: Sequence[str], remove: Sequence[str], environ: Mapping[str, str], level: int) -> bool:
    """Remove what is found; True when nothing is left, even if another process has removed it."""
    found = _output(find, environ)
    if not found or not found.split():
        return found is not None
    _log.log(
        level, "Containers or networks of an engine that has ended are removed", extra={"count": len(found.split())}
    )
    return _output([*remove, *found.split()], environ) is not None or _output(find, environ) == ""


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
