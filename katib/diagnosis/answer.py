"""A diagnosis while it is being put together, and the small sentences that both kinds share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from katib.tuning.reading import format_duration
from katib.tuning.service import Diagnosis, RecordedEvent

_SHOWN_WARNINGS = 3
_SHOWN_LINES = 10


@dataclass(slots=True)
class Answer:
    """Verdict, findings and remedies, still growing."""

    verdict: str
    findings: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)
    log_tail: Sequence[str] = ()

    def diagnosis(self, kind: str, name: str, state: str) -> Diagnosis:
        """Return the finished diagnosis: nothing said twice, and no more output than fits a screen."""
        return Diagnosis(
            kind=kind,
            name=name,
            state=state,
            verdict=self.verdict,
            findings=tuple(dict.fromkeys(self.findings)),
            remedies=tuple(dict.fromkeys(self.remedies)),
            log_tail=tuple(self.log_tail)[-_SHOWN_LINES:],
        )


def since(moment: datetime, now: datetime) -> str:
    """Return how long ago a moment was."""
    return format_duration((now - moment).total_seconds())


def pick_warnings(events: Sequence[RecordedEvent], kind: str = "", name: str = "") -> list[RecordedEvent]:
    """Return the newest few warnings, of one object or of all, one of each reason."""
    newest: dict[str, RecordedEvent] = {}
    for event in events:
        if event.warning and kind in ("", event.kind) and name in ("", event.name):
            newest.pop(event.reason, None)
            newest[event.reason] = event
    return list(newest.values())[-_SHOWN_WARNINGS:]


def finding_of_event(event: RecordedEvent) -> str:
    """Return a warning as a sentence."""
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"Warning {event.reason}: {event.message.rstrip('.')}{times}."
