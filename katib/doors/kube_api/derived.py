"""Kinds whose objects are derived from other data of a home, at least in part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from katib.doors.kube_api.resources import CLUSTER_RUNTIME, EVENT, SERVICE_ACCOUNT
from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT, NAMESPACE, OPTIMIZATION_JOB
from katib.engine.runtime.objects import Key, Kind, Object
from katib.engine.stores.event_queue import StoredEvent
from katib.errors import NotFoundError
from katib.model.types import API_VERSION, format_time
from katib.model.version import __version__
from katib.service.tuning.object_home import ObjectHome
from katib.service.tuning.service import DEFAULT_NAMESPACE

Json = dict[str, Any]

DERIVED = frozenset({CLUSTER_RUNTIME, EVENT, NAMESPACE, SERVICE_ACCOUNT})
TRAINER_FACTS = Key("kubeflow-system", "kubeflow-trainer-public")
_DIGITS = 16
_ROUNDING = timedelta(milliseconds=1)


def derived_objects(home: ObjectHome, kind: Kind, namespace: str | None) -> list[Object]:
    """Return the objects of a derived kind in order of creation."""
    if kind == EVENT:
        return list(_events(home, namespace, None))
    if kind == CLUSTER_RUNTIME:
        stored = home.objects.list(kind).items
        names = {Key.of(obj) for obj in stored}
        return [*(_shipped(obj) for obj in home.runtimes if Key.of(obj) not in names), *stored]
    found = _namespaces(home)
    if kind == NAMESPACE:
        return list(found.values())
    return [_header(SERVICE_ACCOUNT, "default", namespace=name) for name in found if namespace in (None, name)]


def derived_object(home: ObjectHome, kind: Kind, key: Key) -> Object:
    """Return one object of a derived kind.

    Raises:
        NotFoundError: There is none of that name.
    """
    for obj in derived_objects(home, kind, key.namespace or None):
        if Key.of(obj) == key:
            return obj
    raise NotFoundError(f"{kind.kind} {key}: not found")


def trainer_facts() -> Object:
    """Return the ConfigMap with a Trainer's version; a client of Kubeflow reads it and warns without it."""
    header = _header(CONFIG_MAP, TRAINER_FACTS.name, namespace=TRAINER_FACTS.namespace)
    return {**header, "data": {"kubeflow_trainer_version": f"katib-{__version__}"}}


def _shipped(runtime: Object) -> Json:
    header = _header(CLUSTER_RUNTIME, Key.of(runtime).name)
    return {**runtime, "metadata": {**runtime["metadata"], **header["metadata"]}}


def _namespaces(home: ObjectHome) -> dict[str, Object]:
    """Return the namespaces that were created, and those with an experiment."""
    stored = {Key.of(obj).name: obj for obj in home.objects.list(NAMESPACE).items}
    used = {Key.of(obj).namespace for obj in home.objects.list(EXPERIMENT).items}
    names = sorted({DEFAULT_NAMESPACE, *used, *stored})
    parts = {"spec": {}, "status": {"phase": "Active"}}
    made = {n: _header(NAMESPACE, n, labels={"kubernetes.io/metadata.name": n}) | parts for n in names}
    return {**made, **stored}


def _header(kind: Kind, name: str, **metadata: Any) -> Json:
    uid = _uid_of(kind.kind, metadata.get("namespace", ""), name)
    header = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**header, "metadata": {"name": name, "uid": uid, "resourceVersion": "1", **metadata}}


def _uid_of(*parts: str) -> str:
    """Return a uid that depends only on the parts."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def events_after(home: ObjectHome, namespace: str | None, version: int) -> list[Object]:
    """Return the events, repetitions included, after a revision, oldest first."""
    moment = datetime.fromtimestamp(version / 1e6, UTC) - _ROUNDING
    found = _events(home, namespace, moment)
    return [obj for obj in found if int(obj["metadata"]["resourceVersion"]) > version]


def _events(home: ObjectHome, namespace: str | None, since: datetime | None) -> Iterator[Object]:
    uids: dict[tuple[str, Key], str] = {}
    for event in home.events(namespace, since):
        about = (event.subject.kind, Key(event.subject.namespace, event.subject.name))
        if about not in uids:
            uids[about] = _uid_of_object(home, *about)
        yield _event(event, uids[about])


def _uid_of_object(home: ObjectHome, kind: str, key: Key) -> str:
    with suppress(NotFoundError):
        return str(home.objects.get(Kind(_version_of(kind), kind), key)["metadata"]["uid"])
    return ""


def _version_of(kind: str) -> str:
    """Return the apiVersion of a kind that events involve."""
    return OPTIMIZATION_JOB.api_version if kind == OPTIMIZATION_JOB.kind else API_VERSION


def _event(event: StoredEvent, uid: str) -> Json:
    subject = event.subject
    identity = _uid_of(subject.kind, subject.namespace, subject.name, event.reason, event.message)
    involved = {"apiVersion": _version_of(subject.kind), "kind": subject.kind, "name": subject.name}
    involved |= {"namespace": subject.namespace, **({"uid": uid} if uid else {})}
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{subject.name}.{identity.replace('-', '')[:_DIGITS]}",
            "namespace": subject.namespace,
            "uid": identity,
            "resourceVersion": str(version_at(event.last_time)),
            "creationTimestamp": format_time(event.first_time),
        },
        "involvedObject": involved,
        "reason": event.reason,
        "message": event.message,
        "type": "Warning" if event.warning else "Normal",
        "count": event.count,
        "firstTimestamp": format_time(event.first_time),
        "lastTimestamp": format_time(event.last_time),
        "eventTime": None,
        "source": {"component": "katib"},
        "reportingComponent": "katib",
        "reportingInstance": "",
    }


def version_at(moment: datetime) -> int:
    """Return the revision of events at a time: microseconds, because they are stored without one."""
    return int(moment.astimezone(UTC).timestamp() * 1e6)
