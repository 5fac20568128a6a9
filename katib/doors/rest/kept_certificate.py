"""The certificate of a server of one machine, kept in its data directory so that clients can keep their trust."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from katib.doors.rest.server import is_loopback
from katib.errors import TerminalError
from katib.model.files.whole_files import write_whole
from katib.wire.serving.certificates import Certificate, is_sound, issue

_CHAIN, _KEY, _AUTHORITY = "kubernetes.crt", "kubernetes.key", "kubernetes-ca.crt"
_LIFETIME = timedelta(days=3_650)
_SOON = timedelta(days=30)
"""A certificate that ends sooner is replaced at the next start."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate on disk."""

    chain: Path
    key: Path
    authority: bytes


def kept_certificate(directory: Path, host: str) -> CertificateFiles:
    """Return the certificate of a directory; made at the first call, and when it ends soon or lacks the host.

    Raises:
        TerminalError: It cannot be kept.
    """
    chain, key, authority = (directory / name for name in (_CHAIN, _KEY, _AUTHORITY))
    names = sorted({"localhost", "127.0.0.1", "::1", *_names(host)})
    now = datetime.now(UTC)
    try:
        with suppress(FileNotFoundError):
            found, trusted = Certificate(chain.read_bytes(), key.read_bytes()), authority.read_bytes()
            if is_sound(found, trusted, names, now + _SOON):
                return CertificateFiles(chain, key, trusted)
        issued = issue(names, now, _LIFETIME)
        for path, pem in (
            (key, issued.certificate.key),
            (authority, issued.authority),
            (chain, issued.certificate.chain),
        ):
            write_whole(path, pem.decode(), is_private=True)
    except OSError as error:
        raise TerminalError(
            f"{error.filename or directory}: the certificate cannot be kept: {error.strerror}"
        ) from error
    return CertificateFiles(chain, key, issued.authority)


def _names(host: str) -> tuple[str, ...]:
    """Return the other names and addresses of this machine, if it listens to them."""
    if is_loopback(host):  # a laptop's own name changes with its network, and copies of the file are to stay good
        return ()
    own = socket.gethostname()
    found = (own, "" if host in ("0.0.0.0", "::") else host)  # noqa: S104 - compared with, not listened on
    return tuple(name for name in found if name and name.isascii())
