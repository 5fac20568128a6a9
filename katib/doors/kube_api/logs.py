"""Output of the containers of a pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from katib.doors.kube_api.bodies import flag, number
from katib.doors.kube_api.columns import value_at
from katib.doors.kube_api.objects import ObjectService, RequestTarget
from katib.doors.kube_api.statuses import StatusError, bad_request
from katib.engine.controllers.kinds import TRIAL
from katib.engine.runtime.objects import Key, Object
from katib.errors import NotFoundError
from katib.model.types import ObjectMeta, Trial
from katib.service.tuning.ports import Part, TimedLines
from katib.service.tuning.replicas import COLLECTORS, is_over, trial_of


def log_chunks(objects: ObjectService, target: RequestTarget, query: Mapping[str, str]) -> Iterator[bytes]:
    """Return the output of a container in chunks.

    Raises:
        NotFoundError: There is no such pod, or it has no output.
        StatusError: The requested output is not kept.
    """
    pod = objects.get(target)
    container = _container(pod, query.get("container", ""))
    lines = TimedLines(_since(query), flag(query, "timestamps"), flag(query, "previous"))
    if lines.previous:
        statuses = value_at(pod, "status", "containerStatuses") or ()
        if not any(status.get("name") == container and status.get("restartCount") for status in statuses):
            name = pod["metadata"]["name"]
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    output, trial = objects.home.output, _trial_of(objects, pod)
    follow = partial(_goes_on, objects, target) if flag(query, "follow") and not lines.previous else None
    part = Part(follow, number(query, "tailLines"), target.name, container)
    chunks = output.read(trial, part) if lines == TimedLines() else output.read_timed(trial, lines, part)
    limit = number(query, "limitBytes")
    return chunks if limit is None else _cut(chunks, limit)


def _since(query: Mapping[str, str]) -> datetime | None:
    """Return the time from which lines are requested; None for all lines."""
    seconds, text = number(query, "sinceSeconds"), query.get("sinceTime", "")
    if seconds is not None and text:
        raise bad_request("sinceSeconds: at most one of sinceTime and sinceSeconds may be given")
    if seconds is not None:
        return datetime.now(UTC) - timedelta(seconds=seconds)
    if not text:
        return None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment
    raise bad_request(f"sinceTime: {text[:40]!r} is not a time as 2026-08-01T12:00:00Z")


def _trial_of(objects: ObjectService, pod: Object) -> Trial:
    """Return the trial of a pod; for the pod of a job without one, a placeholder with which output is found."""
    key = Key(Key.of(pod).namespace, trial_of(pod))
    with suppress(NotFoundError):
        return Trial.read(objects.home.objects.get(TRIAL, key))
    return Trial(metadata=ObjectMeta(name=key.name, namespace=key.namespace))


def _goes_on(objects: ObjectService, target: RequestTarget) -> bool:
    with suppress(NotFoundError):
        return not is_over(dict(objects.get(target)))
    return False


def _container(pod: Object, wanted: str) -> str:
    """Return the name of a container: by default the only one, empty for the primary one.

    Katib's SDK requests the output of the collector's container, which on a cluster prints the primary one's output.
    """
    spec = pod.get("spec") or {}
    names = [c["name"] for field in ("containers", "initContainers") for c in spec.get(field) or ()]
    if wanted in COLLECTORS and wanted not in names:
        return ""
    if wanted and wanted not in names:
        raise bad_request(
            f"container {wanted} is not valid for pod {pod['metadata']['name']}; it has {', '.join(names)}"
        )
    if not wanted and len(spec.get("containers") or ()) > 1:
        raise StatusError(400, f"a container name must be specified, choose one of: {', '.join(names)}")
    return wanted or (names[0] if names else "")


def _cut(chunks: Iterator[bytes], left: int) -> Iterator[bytes]:
    for chunk in chunks:
        if left <= 0:
            return
        yield chunk[:left]
        left -= len(chunk)
