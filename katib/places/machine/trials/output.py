"""Output of trials on one machine: that of their containers by pod, and the times of its lines."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from katib.engine.controllers.kinds import key_of
from katib.engine.runtime.objects import Key, Object
from katib.errors import NotFoundError, invalid
from katib.model.failure_text import LAST_OUTPUT_BYTES, last_line
from katib.model.names import REPLICA_ANNOTATION, TRIAL_LABEL
from katib.model.types import Trial
from katib.places.machine.pods.log_file import RUN_BEGINS, TIME_RECORD, log_parts, read_end, times_of
from katib.places.machine.pods.plans import read_note, replica_of
from katib.places.machine.trials.files import TrialFiles
from katib.places.machine.trials.left_files import left_files, read_left_file
from katib.service.tuning.ports import ALL, Part, TimedLines, no_file
from katib.service.tuning.replicas import (
    Json,
    find_replica,
    has_failed,
    has_role,
    is_over,
    is_primary,
    named_replica,
    newest_of_each,
    no_container,
    replica_name,
    was_stopped,
)
from katib.service.tuning.service import TrialFile
from katib.service.tuning.states import failure_of, is_completed, objective_value

_NOTES = ("directory", "containers", "replica", "index", "isMeasured")
"""Fields of a pod's note beside those of an object."""

_CHUNK_BYTES = 64 << 10
_MOMENT_SECONDS = 0.001
_POLL_SECONDS = 0.1
"""Polling interval of a followed file: fast for the user, and negligible for the machine."""


class LogChunk(NamedTuple):
    """A chunk of a log, the open file that it was read from, and its position."""

    file: BinaryIO
    place: int
    chunk: bytes


Shape = Callable[[Iterable[LogChunk], Path], Iterator[bytes]]
"""Converts the pieces of a file into output."""


class TrialOutput(TrialFiles):
    """Reads the output of trials. Implements `katib.service.tuning.ports.TimedOutput`. Thread-safe."""

    def log_file(self, trial: Trial, replica: str = "", container: str = "") -> Path | None:
        """Return the output of a container of a trial, None if it has not run.

        Args:
            replica: The pod, such as `worker-1`, or its name, for the newest of that name; empty for the one whose
                failure ended the trial, else the primary one that counts.
            container: The container of it; empty for the primary one, or another if that has not run.

        Raises:
            NotFoundError: There are replicas, but not of that name; or it has no such container.
        """
        chosen = self._chosen_pods(trial, replica)
        logs = _logs_of(chosen)
        wanted = container or trial.spec.primary_container_name
        paths = [path for path in logs if path.stem == wanted]
        if not paths and container and logs:
            names = [name for pod in chosen for name in pod.get("containers") or ()] or [path.stem for path in logs]
            if container not in names:  # otherwise it may only start later
                raise no_container(container, sorted(set(names)), _title(trial, replica))
        elif not paths and (replica or failure_of(trial)):
            paths = logs
        return max(paths, key=_modified_at, default=None)

    def _chosen_pods(self, trial: Trial, replica: str) -> Sequence[Object]:
        """Return the pods of a replica, or of the one whose failure ended the trial, or of the primary one that counts.

        If the pods of a job have no roles, any of them is a primary one.
        """
        found = self._noted_pods(trial)
        if replica:
            return find_replica(found, replica, trial.name) if found else ()
        if failed := [pod for pod in found if replica_name(pod) == named_replica(trial)]:
            return failed
        primary = [pod for pod in found if "labels" not in pod["metadata"] or is_primary(pod, trial)]  # or may be
        primary = primary or ([] if any(map(has_role, found)) else found)
        if not any(pod.get("replica") for pod in primary):
            return primary
        leading = min(newest_of_each(map(dict, primary)), key=partial(_rank, trial=trial))
        return [pod for pod in primary if replica_name(pod) == replica_name(leading)]

    def past_pods(self, trial: Trial) -> Sequence[Object]:
        """Return the final state of the pods of a job with several replicas, the newest of each name."""
        ended = [pod for pod in self._noted_pods(trial) if "status" in pod]
        return [
            {name: value for name, value in pod.items() if name not in _NOTES}
            for pod in {pod["metadata"]["name"]: pod for pod in ended}.values()
        ]

    def _noted_pods(self, trial: Trial) -> list[Object]:
        """Return the pods from their own notes, oldest first, each with its directory."""
        key = key_of(trial)
        with contextlib.suppress(FileNotFoundError):  # files of an earlier attempt are being removed
            directories = [path for path in self.directory(key).glob("*/") if path.is_dir()]
            pods = [_noted_pod(path, key) for path in sorted(directories, key=lambda path: path.stat().st_ctime)]
            return [pod for pod in pods if pod is not None]
        return []

    def files(self, trial: Trial) -> Sequence[TrialFile]:
        """Return the files in the folder of the pod whose output is shown, by path."""
        log = self.log_file(trial)
        return () if log is None else left_files(log.parent)

    def read_file(self, trial: Trial, path: str) -> Iterator[bytes]:
        """Yield one of these files in chunks.

        Raises:
            NotFoundError: There is no such file.
        """
        log = self.log_file(trial)
        if log is None or path not in {file.path for file in left_files(log.parent)}:
            raise no_file(trial, path)
        return read_left_file(log.parent, path, no_file(trial, path))

    def read(self, trial: Trial, part: Part = ALL) -> Iterator[bytes]:
        """Yield the output of one container of a trial in chunks.

        Raises:
            NotFoundError: It never ran here, its files were removed, or there is no such replica or container.
        """
        return self._read(trial, part, _plain)

    def read_timed(self, trial: Trial, lines: TimedLines, part: Part = ALL) -> Iterator[bytes]:
        """Yield selected lines of output: `katib.service.tuning.ports.TimedOutput`."""
        path = self.log_file(trial, part.replica, part.container)
        if path is not None and path.stat().st_size and not any(path.parent.glob(f"{path.stem}.times.*")):
            cause, remedy = "no times of its lines are kept", "leave out timestamps, since and previous"
            raise invalid(_title(trial, part.replica), cause, remedy, "output-without-times")
        shape = partial(timed_lines, since=lines.since, shows=lines.shows)
        if not lines.previous:
            return self._read(trial, part, shape)
        if path is None:
            raise _no_output(_title(trial, part.replica), part.container)
        files = _opened(path)
        try:
            data = b"".join(shape(previous_run(files, path), path))
        finally:
            for file in files:
                file.close()
        found = data.splitlines(keepends=True)
        return iter(found if part.tail_lines is None else found[max(0, len(found) - part.tail_lines) :])

    def _read(self, trial: Trial, part: Part, shape: Shape) -> Iterator[bytes]:
        find = partial(self.log_file, trial, part.replica, part.container)
        path = find()
        if path is not None:
            return shape(self._pieces(path, part), path)
        missing = _no_output(_title(trial, part.replica), part.container or trial.spec.primary_container_name)
        if part.follow is not None and part.follow():
            return self._awaited_chunks(find, missing, part, shape)
        raise missing

    def container_quoted(self, trial: Trial, text: str) -> str:
        """Return the container whose last line a text quotes; empty for the primary one, or for none."""
        newest = self.log_file(trial)
        if newest is not None and _is_quoted(newest, text):
            return ""
        logs = _logs_of(self._chosen_pods(trial, ""))
        quoted = [path for path in logs if _is_quoted(path, text)]
        found = max(quoted, key=_modified_at, default=None)
        return "" if found is None or found.stem == trial.spec.primary_container_name else found.stem

    def tail(self, trial: Trial, lines: int, replica: str = "", container: str = "") -> tuple[str, ...]:
        """Return the last lines of a container's output, by default the primary one's; none if it never ran."""
        try:
            path = self.log_file(trial, replica, container)
        except NotFoundError:
            return ()
        if path is None:
            return ()
        data = b"".join(_plain(self._pieces(path, Part(tail_lines=lines)), path))
        return tuple(data.decode(errors="replace").splitlines())

    def program(self, trial: Trial) -> tuple[str, bool]:
        """Return the full path of the primary container's last program, and whether it ran in its image.

        The path is empty if unknown, and for an image, where it would be the path of the runtime's client.
        """
        container = trial.spec.primary_container_name
        path = self.log_file(trial)
        if path is None:
            return "", False
        try:
            note = read_note(path.parent)
            if note.get("inImage"):
                return "", True
            found = (str(p["program"]) for p in reversed(note["processes"]) if p["container"] == container)
            return next(found, ""), False
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return "", False

    def _awaited_chunks(
        self, find: Callable[[], Path | None], missing: NotFoundError, part: Part, shape: Shape
    ) -> Iterator[bytes]:
        """Wait for the file. Empty chunks let a caller detect that its reader is gone."""
        goes_on = True
        while (path := find()) is None:
            if not goes_on:
                raise missing
            yield b""
            time.sleep(_POLL_SECONDS)
            goes_on = part.follow is not None and part.follow()
        yield from shape(self._pieces(path, part), path)

    def _pieces(self, path: Path, part: Part) -> Iterator[LogChunk]:
        follow = part.follow
        files: list[BinaryIO] = []
        try:
            try:
                files = _opened(path)
            except FileNotFoundError:  # files of an earlier attempt are being removed
                return
            if part.tail_lines is not None:
                files = _from_tail(files, part.tail_lines)
            while True:
                goes_on = follow is not None and follow()  # asked first: output written before the end is read below
                while files:
                    if follow is not None and len(files) == 1:  # asked before its end is read, as above
                        files += _following(path, files[0])
                    while chunk := files[0].read(_CHUNK_BYTES):
                        yield LogChunk(files[0], files[0].tell() - len(chunk), chunk)
                    if len(files) == 1:
                        break
                    files.pop(0).close()
                if not goes_on:
                    return
                time.sleep(_POLL_SECONDS)
                yield LogChunk(files[0], 0, b"")  # lets a caller detect that its reader is gone
        finally:
            for file in files:
                file.close()


def _plain(pieces: Iterable[LogChunk], _path: Path) -> Iterator[bytes]:
    return (piece.chunk for piece in pieces)


def _opened(path: Path) -> list[BinaryIO]:
    """Return the files of a log, oldest first, consistently, except for a few later bytes."""
    while True:
        try:
            newest = path.open("rb")
            break
        except FileNotFoundError:  # renamed just now, and the next one does not exist yet
            if len(log_parts(path)) == 1:
                raise
            time.sleep(_MOMENT_SECONDS)
    files: list[BinaryIO] = []
    for part in log_parts(path)[:-1]:
        with contextlib.suppress(FileNotFoundError):  # removed just now
            files.append(part.open("rb"))
            if os.path.sameopenfile(files[-1].fileno(), newest.fileno()):
                newest.close()
                return files
    return [*files, newest]


def _following(path: Path, file: BinaryIO) -> list[BinaryIO]:
    """Return the file of a log that follows an open one; none while that one is still written to."""
    status = os.fstat(file.fileno())
    parts, position = log_parts(path), -1
    for i, part in enumerate(parts):
        with contextlib.suppress(OSError):
            if os.path.samestat(part.stat(), status):
                position = i
    for part in parts[position + 1 :]:  # all of them if the open one was removed because of a slow reader
        with contextlib.suppress(OSError):
            return [part.open("rb")]
    return []


def _is_quoted(log: Path, text: str) -> bool:
    line = last_line(read_end(log, LAST_OUTPUT_BYTES))
    return bool(line) and line.rstrip(".") in text


def _logs_of(pods: Sequence[Object]) -> list[Path]:
    """Return the logs of pods, without those of a pod that is being removed."""
    logs: list[Path] = []
    for pod in pods:
        with contextlib.suppress(FileNotFoundError):
            logs.extend(Path(pod["directory"]).glob("*.log"))
    return logs


def _modified_at(path: Path) -> float:
    """Return the modification time of a file; 0 if it is being removed."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _noted_pod(directory: Path, trial: Key) -> Object | None:
    """Return a pod from the note in its directory; labels are absent if they were not written.

    It is None while the pod has not started.
    """
    note: Json = {}
    with contextlib.suppress(OSError, ValueError):
        note = read_note(directory)
    if not note.keys() & {"processes", "pod"} and not any(directory.glob("*.log")):
        return None
    try:
        metadata: dict[str, Any] = {"name": str(note["name"]), "namespace": trial.namespace}
        replica = replica_of(note.get("role") or "", note.get("index"))
        if "labels" in note:
            metadata["labels"] = {**note["labels"], TRIAL_LABEL: trial.name}
        if replica:
            metadata["annotations"] = {REPLICA_ANNOTATION: replica}
        ended = note.get("pod") or {}
        known = {**ended.get("metadata", {}), **metadata}
        if started := (ended.get("status") or {}).get("startTime"):
            known["creationTimestamp"] = started
    except (LookupError, TypeError, AttributeError):
        return {"metadata": {"name": directory.name}, "directory": str(directory)}
    kept = {name: note.get(name) for name in _NOTES}
    return {**ended, **kept, "metadata": known, "directory": str(directory)}


def _rank(pod: Json, trial: Trial) -> tuple[bool, bool, bool, bool, int]:
    """Return a sort key of pods: the most informative one about its trial first.

    While the trial runs, a running pod is best; afterwards one with the objective in its output, especially the value
    of the trial. Ties are resolved by the lowest index, which is the first of its peers.
    """
    is_active, value = not is_completed(trial), objective_value(trial)
    has_value = not is_active and value is not None and _prints(pod, trial, value)
    unmeasured = is_over(pod) if is_active else not pod.get("isMeasured")
    return unmeasured, not has_value, was_stopped(pod), has_failed(pod), pod.get("index") or 0


def _prints(pod: Json, trial: Trial, value: str) -> bool:
    """Return whether the output of the primary container contains a value of a metric."""
    path = Path(pod["directory"]) / f"{trial.spec.primary_container_name}.log"
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:  # ValueError: it is empty
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return re.search(rb"(?<![\w.])" + re.escape(value.encode()) + rb"(?!\.?\w)", data) is not None
    return False


def _title(trial: Trial, replica: str) -> str:
    return f'replica {replica} of trial "{trial.name}"' if replica else f'trial "{trial.name}"'


def _no_output(title: str, container: str) -> NotFoundError:
    which = f'container "{container}"' if container else "it"  # an imported trial has no containers
    return NotFoundError(f"{title} has no output: {which} has not run here")


def _from_tail(files: list[BinaryIO], lines: int) -> list[BinaryIO]:
    """Return the files from the one in which the last lines begin, positioned there; the others are closed.

    They are read backwards, so that a huge log costs nothing.
    """
    found, at_end = 0, True
    for i in reversed(range(len(files))):
        position = files[i].seek(0, os.SEEK_END)
        while position > 0 and lines > 0:
            start = max(position - _CHUNK_BYTES, 0)
            files[i].seek(start)
            block = files[i].read(position - start)
            stop = len(block) - 1 if at_end and block.endswith(b"\n") else len(block)
            at_end = False
            while (stop := block.rfind(b"\n", 0, stop)) >= 0:
                found += 1
                if found == lines:
                    files[i].seek(start + stop + 1)
                    return _kept(files, i)
            position = start
        if lines <= 0:
            return _kept(files, i)
        files[i].seek(0)
    return files


def _kept(files: list[BinaryIO], first: int) -> list[BinaryIO]:
    for file in files[:first]:
        file.close()
    return files[first:]


class _Times:
    """Times of the bytes of one file of a log, as far as known.

    Attributes:
        begins: Positions at which a run of the container begins.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = times_of(path, os.fstat(file.fileno()))
        self._places: list[int] = []
        self._moments: list[int] = []
        self.begins: list[int] = []

    def refresh(self) -> None:
        """Read records written since."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(len(self._places) * TIME_RECORD.size)
            data = file.read()
            for place, moment in TIME_RECORD.iter_unpack(data[: len(data) - len(data) % TIME_RECORD.size]):
                self._places.append(place)
                self._moments.append(moment & ~RUN_BEGINS)
                if moment & RUN_BEGINS:
                    self.begins.append(place)

    def at(self, place: int) -> int:
        """Return the time of a byte in microseconds since 1970; 0 if unknown."""
        return self._moments[max(0, bisect_right(self._places, place) - 1)] if self._moments else 0


def timed_lines(
    pieces: Iterable[LogChunk], path: Path, *, since: datetime | None = None, shows: bool = False
) -> Iterator[bytes]:
    """Yield the lines of a log from a time on.

    Args:
        pieces: Its content, in order.
        since: The time; None for all lines.
        shows: Whether to prefix each line with its time, in the form of Kubernetes.
    """
    earliest = 0 if since is None else int(since.timestamp() * 1e6)
    current: BinaryIO | None = None
    times: _Times | None = None
    begins, keeps = True, True
    for file, place, chunk in pieces:
        if times is None or file is not current:
            current, times = file, _Times(path, file)
        times.refresh()
        found, start = [], 0
        while start < len(chunk):
            if begins:
                moment = times.at(place + start)
                keeps = moment >= earliest
                if keeps and shows:
                    seconds, fraction = divmod(moment, 1_000_000)
                    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:06}Z "
                    found.append(stamp.encode())
            end = chunk.find(b"\n", start) + 1 or len(chunk)
            found += [chunk[start:end]] if keeps else []
            begins, start = chunk[end - 1 : end] == b"\n", end
        yield b"".join(found)


def previous_run(files: Sequence[BinaryIO], path: Path) -> Iterator[LogChunk]:
    """Yield the output of a container's run before its last one, as far as it is kept.

    Args:
        files: The open files of its log, oldest first.
    """
    begins: list[tuple[int, int]] = []
    for number, file in enumerate(files):
        times = _Times(path, file)
        times.refresh()
        begins += [(number, place) for place in times.begins]
    first, last = ([(0, 0), *begins] if len(begins) == 1 else begins)[-2:] if begins else ((0, 0), (0, 0))
    for number, file in enumerate(files[: last[0] + 1]):
        start = first[1] if number == first[0] else 0
        if number >= first[0]:
            file.seek(start)
            yield LogChunk(file, start, file.read(last[1] - start if number == last[0] else -1))
