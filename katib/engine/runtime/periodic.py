"""A thread that runs functions periodically, and immediately when woken."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from katib.engine.runtime.clock import Clock
from katib.errors import KatibError

_log = logging.getLogger(__name__)


class PeriodicTasks:
    """Calls functions one after the other in every period; errors do not end it.

    A KatibError is logged if it differs from the last one, any other error always, with its traceback.

    Args:
        period_seconds: Time between the end of one run and the next.
        complaint: Log message for a failure, followed by the error.
    """

    def __init__(
        self, name: str, looks: Sequence[Callable[[], None]], period_seconds: float, clock: Clock, *, complaint: str
    ) -> None:
        self._looks = tuple(looks)
        self._period_seconds = period_seconds
        self._clock = clock
        self._complaint = complaint
        self._last_errors = [""] * len(self._looks)
        self._changed = threading.Condition()
        self._woken = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which first waits for a period unless woken before."""
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Make the thread run the functions immediately."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def look(self) -> None:
        """Run the functions now, on the caller's thread."""
        for i, look in enumerate(self._looks):
            error = ""
            try:
                look()
            except KatibError as failure:
                error = str(failure)
                if error != self._last_errors[i]:
                    _log.warning("%s: %s", self._complaint, error)
            except Exception:  # noqa: BLE001 - the thread must survive any error, such as from a foreign object
                _log.exception(self._complaint)
            self._last_errors[i] = error

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._woken and not self._stopping:
                    self._clock.wait(self._changed, self._period_seconds)
                if self._stopping:
                    return
                self._woken = False
            self.look()
