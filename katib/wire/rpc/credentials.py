"""Credentials for the DB manager: a client's token and authorities, and the server's certificate."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from katib.errors import invalid
from katib.wire.rpc.connection import CHANNEL_OPTIONS
from katib.wire.rpc.tokens import METADATA_KEY, TOKEN_VARIABLE

AUTHORITY_VARIABLE = "KATIB_DB_MANAGER_CA"
SERVER_NAME = "katib-db-manager"
"""Name in the certificate of every DB manager, independent of its address."""

CERTIFICATE_FILE, KEY_FILE = "tls.crt", "tls.key"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DbManagerCredentials:
    """Credentials for calling a DB manager.

    Attributes:
        token: Sent with each call unless empty. Katib's DB manager ignores it.
        authority: Certificate authorities (PEM) of the DB manager; empty for plain text.
    """

    token: str = field(default="", repr=False)
    authority: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that pass them to a pod; `of` reads them."""
        given = {TOKEN_VARIABLE: self.token, AUTHORITY_VARIABLE: self.authority}
        return {name: value for name, value in given.items() if value}

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> DbManagerCredentials:
        """Return the credentials in a pod's environment."""
        return cls(environment.get(TOKEN_VARIABLE, ""), environment.get(AUTHORITY_VARIABLE, ""))

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((METADATA_KEY, self.token),) if self.token else ()

    def channel(self, address: str) -> grpc.Channel:
        if not self.authority:
            return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        name = ("grpc.ssl_target_name_override", SERVER_NAME)
        credentials = grpc.ssl_channel_credentials(self.authority.encode())
        return grpc.secure_channel(address, credentials, options=(*CHANNEL_OPTIONS, name))


NO_CREDENTIALS = DbManagerCredentials()


def server_credentials(directory: Path) -> grpc.ServerCredentials:
    """Return credentials that follow the files of a directory: a renewed certificate serves the next connection.

    Raises:
        InvalidError: The files cannot be read.
    """
    files = _KeyPair(directory)
    return grpc.dynamic_ssl_server_credentials(files.first(), files.changed)


class _KeyPair:
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
        """Return the new certificate to serve; None if it is unchanged."""
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
