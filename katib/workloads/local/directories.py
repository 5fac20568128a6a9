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


def begun_by(root: Path, job: Object) -> str | None:
    """Return the uid of the job that last began to run under this name; None when none did, or its files are gone."""
    return _uid_in(job_directory(root, *Key.of(job)))


def begin_directory(root: Path, job: Object) -> None:
    """Make an empty directory for a job, in place of what an earlier run or an older job of that name left.

    Raises:
        UnavailableError: The disk cannot be written.
    """
    directory = job_directory(root, *Key.of(job))
    try:
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        (directory / _JOB_FILE).write_text(json.dumps({"uid": job["metadata"]["uid"]}))
    except OSError as error:
        cause = f"cannot write {directory}: {error.strerror}"
        raise UnavailableError(f"{cause}; free space or change its rights") from error


def _uid_in(directory: Path) -> str | None:
    try:
        uid = json.loads((directory / _JOB_FILE).read_text())["uid"]
    except (OSError, ValueError, KeyError):
        return None
    return str(uid)
