"""Looks after the certificate in use: a thread that asks its source again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from katib.admission.certificates import Certificate, CertificateSource
from katib.errors import KatibError
from katib.runtime.clock import Clock

PERIOD_SECONDS = 10.0
"""How long a certificate that was replaced elsewhere, or a bundle that somebody reset, may go unnoticed."""

_LOG = logging.getLogger(__name__)


class CertificateWatch:
    """Hands each new certificate of a source to whoever serves it.

    Args:
        source: Asked at once when started, then once in every period.
        use: Takes a certificate that differs from the one before.
        clock: Times the periods.
    """

    def __init__(self, source: CertificateSource, use: Callable[[Certificate], None], clock: Clock) -> None:
        self._source = source
        self._use = use
        self._clock = clock
        self._condition = threading.Condition()
        self._stopped = False
        self._current: Certificate | None = None
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="katib-certificates", daemon=True)

    def start(self) -> None:
        """Look for the first time, then start the thread."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it; fine when never started."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._stopped:
                    self._clock.wait(self._condition, PERIOD_SECONDS)
                if self._stopped:
                    return
            self._look()

    def _look(self) -> None:
        """Look once; what goes wrong is logged once, and tried again next time."""
        try:
            certificate = self._source.refresh()
            if certificate != self._current:
                self._use(certificate)
                self._current = certificate
                _LOG.info("serving certificate of the webhooks is in use", extra={"serial": _serial(certificate)})
            self._complaint = ""
        except KatibError as error:
            self._complain(str(error))
        except Exception:  # noqa: BLE001 - the thread has to live on
            _LOG.exception("looking after the certificate of the webhooks failed")

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            _LOG.warning("the certificate of the webhooks cannot be renewed", extra={"cause": complaint})


def _serial(certificate: Certificate) -> str:
    return f"{certificate.leaf().serial_number:x}"
