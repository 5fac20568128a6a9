"""Files that a trial left in the folder of its pod."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG

from katib.errors import NotFoundError
from katib.places.machine.pods.plans import is_ours, read_note
from katib.service.tuning.service import TrialFile

_MOST_FILES, _DEEPEST = 300, 6
_CHUNK_BYTES = 64 << 10
_ALONE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def left_files(directory: Path) -> Sequence[TrialFile]:
    """Return the files in a pod's folder, by path; without links and without names that begin with a dot."""
    containers: Sequence[str] = ()
    with suppress(OSError, ValueError):
        containers = read_note(directory).get("containers") or ()
    found: list[TrialFile] = []
    for place, folders, names in os.walk(directory):
        here = Path(place)
        is_deep = len(here.relative_to(directory).parts) >= _DEEPEST
        folders[:] = [] if is_deep else sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = here / name
            with suppress(OSError):  # removed just now
                status = path.lstat()
                if name.startswith(".") or not S_ISREG(status.st_mode) or is_ours(path, directory, containers):
                    continue
                modified = datetime.fromtimestamp(status.st_mtime, UTC)
                found.append(TrialFile(path.relative_to(directory).as_posix(), status.st_size, modified))
    return sorted(found[:_MOST_FILES], key=lambda file: file.path)


def read_left_file(directory: Path, path: str, missing: NotFoundError) -> Iterator[bytes]:
    """Yield a file in chunks; it is missing if it, or a folder on the way to it, has become a link."""
    *folders, name = path.split("/")
    with ExitStack() as stack:
        place = None
        try:
            for folder in (str(directory), *folders):
                place = os.open(folder, _ALONE | os.O_DIRECTORY, dir_fd=place)
                stack.callback(os.close, place)
            file = stack.enter_context(os.fdopen(os.open(name, _ALONE, dir_fd=place), "rb"))
        except OSError:
            raise missing from None
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
