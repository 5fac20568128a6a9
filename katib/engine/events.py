"""The controllers' event recorder over the event log."""

from __future__ import annotations

from katib.api.names import EXPERIMENT_LABEL
from katib.api.types import Resource, Trial
from katib.stores.events import EventLog, EventSubject


class LoggedEvents:
    """Fits `katib.controllers.ports.EventRecorder`."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def record(self, obj: Resource, *, warning: bool, reason: str, message: str) -> None:
        """Note that something happened to an object."""
        experiment = obj.metadata.labels.get(EXPERIMENT_LABEL, "") if isinstance(obj, Trial) else obj.name
        subject = EventSubject(type(obj).__name__, obj.namespace, obj.name, experiment)
        self._log.record(subject, warning=warning, reason=reason, message=message)
