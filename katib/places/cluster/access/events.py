"""Kubernetes events, as the tuning service lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import ForbiddenError, NotFoundError
from katib.model.names import EXPERIMENT_LABEL
from katib.places.cluster.client import ApiConnection
from katib.places.cluster.pods.refusals import ListEvents, time_of_event
from katib.service.tuning.reading import time_of
from katib.service.tuning.service import RecordedEvent

_PAGE_SIZE = 500
_OURS = {kind.kind: kind for kind in (EXPERIMENT, SUGGESTION, TRIAL)}


def server_events(connection: ApiConnection) -> ListEvents:
    """Return a function that lists the events kept by an API server."""

    def list_events(namespace: str, fields: Mapping[str, str]) -> Iterable[Object]:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
        query = {"fieldSelector": ",".join(f"{name}={value}" for name, value in fields.items())}
        pages = connection.pages(path, query=query, page_size=_PAGE_SIZE)
        return [event for page in pages for event in page.get("items") or ()]

    return list_events


@dataclass(frozen=True, slots=True)
class ClusterEventReader:
    """Reader of Kubernetes events. Implements `katib.service.tuning.ports.EventReader`.

    The events of an Experiment include those of its Suggestion and of its existing trials. Events outlive a deleted
    object by an hour; a new object of the same name does not inherit them.
    """

    events: ListEvents
    store: ObjectStore

    def events_of(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        found = [*self._named(kind, namespace, name)]
        if kind == "Experiment":
            found += self._named("Suggestion", namespace, name)
            trials = self.store.list(TRIAL, namespace, labels={EXPERIMENT_LABEL: name}).items
            uids = {Key.of(trial).name: _uid(trial) for trial in trials}
            of_trials = self.events(namespace, {"involvedObject.kind": "Trial"}) if uids else ()
            found += (event for event in of_trials if _is_about(event, uids.get(event["involvedObject"].get("name"))))
        return sorted(map(_recorded, found), key=lambda event: event.time)

    def _named(self, kind: str, namespace: str, name: str) -> Iterable[Object]:
        events = self.events(namespace, {"involvedObject.kind": kind, "involvedObject.name": name})
        uid = self._uid(kind, Key(namespace, name))
        return [event for event in events if _is_about(event, uid)]

    def _uid(self, kind: str, key: Key) -> str:
        """Return the uid of the current object of that name; empty if it is not a kind of Katib's or does not exist."""
        if kind not in _OURS:
            return ""
        with suppress(NotFoundError, ForbiddenError):
            return _uid(self.store.get(_OURS[kind], key))
        return ""


def _uid(obj: Object) -> str:
    return str(obj["metadata"].get("uid") or "")


def _is_about(event: Object, uid: str | None) -> bool:
    """Return whether an event involves the object with this uid; None matches nothing, empty matches any uid."""
    about = event["involvedObject"].get("uid") or ""
    return uid is not None and (not uid or not about or about == uid)


def _recorded(event: Object) -> RecordedEvent:
    about: Mapping[str, Any] = event["involvedObject"]
    series: Mapping[str, Any] = event.get("series") or {}
    return RecordedEvent(
        time=time_of(series.get("lastObservedTime")) or time_of_event(event, "lastTimestamp"),
        kind=str(about.get("kind", "")),
        name=str(about.get("name", "")),
        warning=event.get("type") == "Warning",
        reason=str(event.get("reason", "")),
        message=str(event.get("message", "")),
        count=int(series.get("count") or event.get("count") or 1),
    )
