"""HTTPS server that the API server calls: handlers by path, and certificates that may change while it runs."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Self

from cryptography.hazmat.primitives.serialization import Encoding

from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.periodic import PeriodicTasks
from katib.errors import InvalidError, KatibError, TerminalError
from katib.places.cluster.admission.reviews import AdmissionResponse, Handler, decode_review, encode_answer, refused
from katib.wire.serving.blocking import TEXT, Answer, answered_by
from katib.wire.serving.certificates import Certificate, CertificateSource
from katib.wire.serving.listening import ServerThread, open_socket

CERTIFICATE_PERIOD_SECONDS = 10.0
"""How long a certificate replaced elsewhere, or a reset bundle, may go unnoticed."""

SELF_CHECK_SECONDS = 2.0

_BROKEN = AdmissionResponse(
    allowed=False,
    message="the webhook failed while it looked at the object; its log has the cause",
    code=HTTPStatus.INTERNAL_SERVER_ERROR,
    reason="InternalError",
)

_LOG = logging.getLogger(__name__)


class AdmissionServer:
    """Answers admission reviews. As a context manager it listens while entered. It cannot be restarted.

    Args:
        handlers: Handlers by path.
        certificates: Source of certificates; polled while the server runs.
        port: Port; 0 for a free one.
        clock: Times the polls of the certificates.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        certificates: CertificateSource,
        *,
        host: str = "",
        port: int = 8443,
        clock: Clock | None = None,
    ) -> None:
        self._handlers = dict(handlers)
        self._address = (host, port)
        self._source = certificates
        self._certificate: Certificate | None = None
        self._certificates = PeriodicTasks(
            "katib-certificates",
            [self._refresh_certificate],
            CERTIFICATE_PERIOD_SECONDS,
            clock or SystemClock(),
            complaint="the certificate of the webhooks cannot be renewed",
        )
        self._thread: ServerThread | None = None
        self._port = 0
        self._context: ssl.SSLContext | None = None
        self._served = b""
        self._seen_served = b""

    @property
    def port(self) -> int:
        """The port of the listener; 0 while there is none."""
        return self._port

    @property
    def is_ready(self) -> bool:
        """Whether reviews are answered: a handshake with the certificate in use succeeded.

        Each certificate is probed by a connection of our own until it succeeded once; after that the check is free.
        """
        if self._thread is None or self._context is None:
            return False
        served = self._served
        if self._seen_served != served and self._shows(served):
            self._seen_served = served
        return self._seen_served == served

    def start(self) -> None:
        """Listen. Connections are refused until the first certificate is available, which is tried at once.

        Raises:
            TerminalError: The port cannot be listened on.
        """
        host, port = self._address
        try:
            listening = open_socket(host or None, port)
        except OSError as error:
            place = f"port {port} of {host}" if host else f"port {port}"
            reason = str(error.strerror).partition(" (")[0]  # without the address in words of the library
            cause = f"webhooks cannot listen on {place}: {reason}"
            raise TerminalError(f"{cause}; free it, or choose another one") from error
        self._port = listening.getsockname()[1]
        self._certificates.look()
        self._certificates.start()
        app = answered_by(self._answer, "POST")
        self._thread = ServerThread(app, [listening], "katib-admission", tls=lambda: self._context)

    def stop(self) -> None:
        """Stop listening, let requests in progress finish for a few seconds, and close all connections."""
        self._certificates.stop()
        if self._thread is not None:
            self._thread.close()
        self._thread, self._port = None, 0

    def _answer(self, path: str, body: bytes) -> Answer:
        handler = self._handlers.get(path)
        if handler is None:
            return HTTPStatus.NOT_FOUND, TEXT, b"no webhook has this path"
        try:
            review = decode_review(body)
        except InvalidError as error:
            return HTTPStatus.BAD_REQUEST, TEXT, str(error).encode()
        try:
            answer = encode_answer(review, handler(review))
        except KatibError as error:
            answer = encode_answer(review, refused(error))
        except Exception:  # noqa: BLE001 - a failing handler must not affect others
            _LOG.exception("admission handler failed", extra={"review": review.uid, "resource": review.resource})
            answer = encode_answer(review, _BROKEN)
        return HTTPStatus.OK, "application/json", answer

    def _refresh_certificate(self) -> None:
        """Serve the source's current certificate."""
        certificate = self._source.refresh()
        if certificate == self._certificate:
            return
        leaf = certificate.leaf()
        self._context = certificate.context()
        self._served = leaf.public_bytes(Encoding.DER)
        self._certificate = certificate
        _LOG.info("serving certificate of the webhooks is in use", extra={"serial": f"{leaf.serial_number:x}"})

    def _shows(self, certificate: bytes) -> bool:
        """Return whether a new connection gets this certificate; a byte comparison, so no authority is needed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = (self._address[0] or "127.0.0.1", self.port)
        try:
            with (
                socket.create_connection(address, timeout=SELF_CHECK_SECONDS) as connection,
                context.wrap_socket(connection) as secured,
            ):
                return secured.getpeercert(binary_form=True) == certificate
        except OSError as error:
            _LOG.warning("webhooks do not answer", extra={"cause": str(error)})
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
