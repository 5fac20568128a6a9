"""Where jobs and their pods are on disk: `root/<namespace>/<job>/<pod>/`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from katib.errors import UnavailableError
from katib.runtime.objects import Key, Object

_JOB_FILE = "job.json"


def job_directory(root: Path, namespace: str, name: str) -> Path:
    """Return where the pods of a job have their directories."""
    return root / namespace / name


def begin_directory(root: Path, job: Object) -> bool:
    """Make an empty directory for a job; True when that very job had one, because an earlier engine had begun it.

    Raises:
        UnavailableError: The disk cannot be written.
    """
    directory = job_directory(root, *Key.of(job))
    uid = job["metadata"]["uid"]
    try:
        begun = _uid_in(directory) == uid
        if directory.exists():  # what is there belongs to the earlier run, or to an older job of the same name
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        (directory / _JOB_FILE).write_text(json.dumps({"uid": uid}))
    except OSError as error:
        raise UnavailableError(
            f"cannot write {directory}: {error.strerror}; free space or change its rights"
        ) from error
    return begun


def _uid_in(directory: Path) -> str | None:
    try:
        uid = json.loads((directory / _JOB_FILE).read_text())["uid"]
    except (OSError, ValueError, KeyError):
        return None
    return str(uid)
