"""The certificate that a gRPC server serves with, from files that another program renews."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import grpc

from katib.errors import invalid

CERTIFICATE_FILE, KEY_FILE = "tls.crt", "tls.key"

_log = logging.getLogger(__name__)


def server_credentials(directory: Path) -> grpc.ServerCredentials:
    """Return credentials that follow the files of a directory: a renewed certificate serves the next connection.

    Raises:
        InvalidError: The files cannot be read.
    """
    files = _Files(directory)
    return grpc.dynamic_ssl_server_credentials(files.first(), files.changed)


class _Files:
    """A certificate and its key, read again at each handshake. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._served = (b"", b"")

    def first(self) -> grpc.ServerCertificateConfiguration:
        try:
            self._served = self._read()
        except OSError as error:
            remedy = "mount the Secret with the certificate there"
            path = str(self._directory)
            raise invalid(path, str(error.strerror), remedy, "certificate-files") from error
        return _configuration(*self._served)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what to serve from now on; None: what was served so far."""
        with self._lock:
            try:
                found = self._read()
            except OSError as error:
                _log.warning("the certificate cannot be read again; the old one is served", extra={"error": str(error)})
                return None
            if found == self._served:
                return None
            self._served = found
        _log.info("a renewed certificate is served")
        return _configuration(*found)

    def _read(self) -> tuple[bytes, bytes]:
        return (self._directory / CERTIFICATE_FILE).read_bytes(), (self._directory / KEY_FILE).read_bytes()


def _configuration(chain: bytes, key: bytes) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(key, chain)])
