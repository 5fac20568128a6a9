"""Which running trials are to be stopped, from those who find it out to the Trial controller, which writes it down."""

from __future__ import annotations

from threading import Lock

from katib.api.types import Trial


class Verdicts:
    """Why trials are to be stopped, by the trial's uid. Thread-safe.

    Nothing is lost with this memory: a service that is asked again says the same.
    """

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._lock = Lock()

    def add(self, trial: Trial, reason: str) -> None:
        """Note why a trial is to be stopped."""
        with self._lock:
            self._reasons[trial.metadata.uid] = reason

    def of(self, trial: Trial) -> str:
        """Return why a trial is to be stopped; empty while it may go on."""
        with self._lock:
            return self._reasons.get(trial.metadata.uid, "")

    def forget(self, trial: Trial) -> None:
        """Forget a trial that is over."""
        with self._lock:
            self._reasons.pop(trial.metadata.uid, None)
