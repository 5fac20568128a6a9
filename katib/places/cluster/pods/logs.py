"""Output of trials, read from the logs of their pods."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import quote

from katib.engine.controllers.kinds import POD
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import InvalidError, KatibError, NotFoundError
from katib.model.names import TRIAL_LABEL
from katib.model.types import CollectorKind, Trial
from katib.places.cluster.client import ApiConnection
from katib.places.cluster.pods.reading import OVER
from katib.service.tuning.ports import ALL, Part, no_file
from katib.service.tuning.replicas import COLLECTORS, find_replica, no_container, replica_name
from katib.service.tuning.service import TrialFile
from katib.service.tuning.states import is_completed
from metrics_collector.program import LAUNCHER_DIRECTORY

_SILENCE_SECONDS = 1.0
_LOOK_SECONDS = 1.0
_RANKS = {"Running": 0, "Succeeded": 0, "Failed": 1}
"""Preference among pods: running or succeeded ones, then failed ones, then waiting ones."""


class LogStream(Protocol):
    """The log of one container."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as they arrive, until the end or `close`."""

    def close(self) -> None:
        """End the stream, from any thread."""


OpenLog = Callable[[Key, str, Part], LogStream]
"""Opens the log, or part of the log, of a pod's container.

Raises InvalidError before the container has started, NotFoundError if the pod is gone, and ForbiddenError if logs may
not be read.
"""


def server_logs(connection: ApiConnection) -> OpenLog:
    """Return a function that opens logs through the API server."""

    def open_log(pod: Key, container: str, part: Part) -> LogStream:
        query = {"container": container, "follow": "true" if part.follow is not None else "false"}
        if part.tail_lines is not None:
            query["tailLines"] = str(part.tail_lines)
        path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}/log"
        return connection.stream(path, query=query)

    return open_log


@dataclass(frozen=True, slots=True)
class ClusterOutput:
    """Reader of the output of trials. Implements `katib.service.tuning.ports.TrialOutput`."""

    store: ObjectStore
    open_log: OpenLog

    def read(self, trial: Trial, part: Part = ALL) -> Iterator[bytes]:
        """Yield the output of a trial: that of its newest pod, and with `follow` also of later pods."""
        pods = self._pods(trial, part.replica)
        if pods and part.follow is None:
            return _read(self._open(pods[0], trial, part))
        if part.follow is None or (not pods and not part.follow()):
            raise _no_pod(trial)
        return self._follow(trial, part, part.follow)

    def past_pods(self, _trial: Trial) -> Sequence[Object]:
        """Return nothing: a cluster keeps no trace of a deleted pod."""
        return ()

    def files(self, _trial: Trial) -> Sequence[TrialFile]:
        """Return nothing: the folder of a pod ends with it."""
        return ()

    def read_file(self, trial: Trial, path: str) -> Iterator[bytes]:
        """Refuse: there are no files.

        Raises:
            NotFoundError: Always.
        """
        raise no_file(trial, path)

    def tail(self, trial: Trial, pod: Object, lines: int, container: str = "") -> tuple[str, ...]:
        """Return the last lines of a pod, or of one of its containers; none if they cannot be read."""
        with suppress(KatibError):
            data = b"".join(_read(self._open(pod, trial, Part(tail_lines=lines, container=container))))
            return tuple(data.decode(errors="replace").splitlines())
        return ()

    def _pods(self, trial: Trial, replica: str = "") -> Sequence[Object]:
        """Return the primary pods of a trial, or those of a replica, the most informative first.

        Raises:
            NotFoundError: The trial has pods, but not of that replica.
        """
        primary = {} if replica else trial.spec.primary_pod_labels
        pods = self.store.list(POD, trial.namespace, labels={**primary, TRIAL_LABEL: trial.name}).items
        return most_telling_first(find_replica(pods, replica, trial.name) if replica and pods else pods)

    def _open(self, pod: Object, trial: Trial, part: Part) -> LogStream:
        names, container = container_names(pod), part.container
        if container and container not in names:
            raise no_container(container, names, f'replica {replica_name(pod)} of trial "{trial.name}"')
        key, container = Key.of(pod), container or output_container(trial, pod)
        try:
            return self.open_log(key, container, part)
        except InvalidError as error:
            cause = error.errors[0].cause
            raise NotFoundError(f'trial "{trial.name}" has no output yet: pod {key.name}: {cause}') from error

    def _follow(self, trial: Trial, part: Part, goes_on: Callable[[], bool]) -> Iterator[bytes]:
        read: set[str] = set()
        was_opened = False
        while True:
            more = goes_on()  # asked first: output written before the end is read below
            fresh = [pod for pod in self._pods(trial, part.replica) if pod["metadata"]["uid"] not in read]
            if fresh:
                with suppress(NotFoundError):  # it has not started, or was deleted just now
                    stream = self._open(fresh[0], trial, part)
                    was_opened = True
                    # A busy node may return an empty log for a running container: that is not the end of it.
                    is_final = (fresh[0].get("status") or {}).get("phase") in OVER
                    for chunk in _follow(stream):
                        is_final = is_final or bool(chunk)
                        yield chunk
                    if is_final:
                        read.add(fresh[0]["metadata"]["uid"])
                        part = replace(part, tail_lines=None)  # output of later pods is all new
                        continue
            if not more:
                break
            yield b""
            time.sleep(_LOOK_SECONDS)
        if not was_opened:
            raise _no_pod(trial)


def most_telling_first(pods: Sequence[Object]) -> Sequence[Object]:
    """Return pods ordered by how much they tell about their trial: running or succeeded first, newer before older."""
    newest = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True)
    return sorted(newest, key=lambda pod: _RANKS.get((pod.get("status") or {}).get("phase", ""), 2))


def output_container(trial: Trial, pod: Object) -> str:
    """Return the container with the output: the primary one, or the collector if it wraps the program in Katib's shell.

    A pod that is not primary may lack a container of that name; then its first one.
    """
    primary, names = trial.spec.primary_container_name, container_names(pod)
    is_taken = trial.spec.metrics_collector.kind in ("", CollectorKind.STDOUT) and COLLECTORS[0] in names
    if is_taken and not any(LAUNCHER_DIRECTORY in str(c.get("command")) for c in pod["spec"].get("containers") or ()):
        return COLLECTORS[0]
    return primary if primary in names or not names else names[0]


def container_names(pod: Object) -> Sequence[str]:
    """Return the names of the containers of a pod, its init containers last."""
    spec = pod["spec"]
    return [str(c.get("name")) for c in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))]


def _read(stream: LogStream) -> Iterator[bytes]:
    try:
        yield from stream.chunks()
    finally:
        stream.close()


def _follow(stream: LogStream) -> Iterator[bytes]:
    """Yield the chunks of a stream, and an empty chunk every second without output, so that a reader can leave."""
    chunks: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
    threading.Thread(target=_pump, args=(stream, chunks), name="pod-log", daemon=True).start()
    try:
        while True:
            try:
                chunk = chunks.get(timeout=_SILENCE_SECONDS)
            except queue.Empty:
                chunk = b""
            if chunk is None:
                return
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
    finally:
        stream.close()


def _pump(stream: LogStream, chunks: queue.SimpleQueue[bytes | Exception | None]) -> None:
    try:
        for chunk in stream.chunks():
            chunks.put(chunk)
        chunks.put(None)
    except Exception as error:  # noqa: BLE001 - raised in the reader
        chunks.put(error)


def _no_pod(trial: Trial) -> NotFoundError:
    if is_completed(trial):
        return NotFoundError(
            f'trial "{trial.name}" has no pod any more: it went with its job; '
            "set spec.trialTemplate.retain to true to keep the output of later trials"
        )
    return NotFoundError(
        f'trial "{trial.name}" has no pod yet; `katib why {trial.name}` says what it waits for. '
        "Pods go with their jobs unless spec.trialTemplate.retain is true"
    )
