"""The event log as the controllers write it and the tuning service reads it."""

from __future__ import annotations

from collections.abc import Sequence

from katib.engine.stores.event_queue import EventSubject
from katib.engine.stores.events import EventLog
from katib.model.names import EXPERIMENT_LABEL
from katib.model.types import Resource, Trial
from katib.service.tuning.service import RecordedEvent


class LoggedEvents:
    """Fits `katib.engine.controllers.ports.EventRecorder` and `katib.service.tuning.ports.EventReader`."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def record(self, obj: Resource, *, warning: bool, reason: str, message: str) -> None:
        experiment = obj.metadata.labels.get(EXPERIMENT_LABEL, "") if isinstance(obj, Trial) else obj.name
        subject = EventSubject(type(obj).__name__, obj.namespace, obj.name, experiment)
        self._log.record(subject, warning=warning, reason=reason, message=message)

    def events_of(self, kind: str, namespace: str, name: str) -> Sequence[RecordedEvent]:
        """Return the events of an object, oldest first; for an Experiment those of its trials too."""
        return tuple(
            RecordedEvent(e.last_time, e.subject.kind, e.subject.name, e.warning, e.reason, e.message, e.count)
            for e in self._log.of(EventSubject(kind, namespace, name, name))
        )
