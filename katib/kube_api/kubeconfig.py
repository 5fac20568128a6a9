"""The file by which clients find this server: its address, its token and the certificate to trust, for its owner only.

The certificate is kept beside it, so that copies of the file stay good over restarts.
"""

from __future__ import annotations

import base64
import shlex
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from katib.certificates import Certificate, is_sound, issue
from katib.errors import NotFoundError, TerminalError
from katib.rest.notes import write_privately
from katib.rest.server import is_loopback
from katib.tuning.service import DEFAULT_NAMESPACE

KUBECONFIG = "kubeconfig"
_CHAIN, _KEY, _AUTHORITY = "kubernetes.crt", "kubernetes.key", "kubernetes-ca.crt"
_CONTEXT = "katib"
_LIFETIME = timedelta(days=3_650)
_SOON = timedelta(days=30)
"""A certificate that ends sooner is replaced at the next start."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """A certificate on disk.

    Attributes:
        chain: File with the certificate.
        key: File with its key.
        authority: PEM text of what clients have to trust.
    """

    chain: Path
    key: Path
    authority: bytes


def kept_certificate(directory: Path, host: str) -> CertificateFiles:
    """Return the certificate of a directory; made at the first call, and when it ends soon or lacks the host.

    Args:
        directory: Where it is kept.
        host: Where the server listens.

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
            write_privately(path, pem.decode())
    except OSError as error:
        raise TerminalError(
            f"{error.filename or directory}: the certificate cannot be kept: {error.strerror}"
        ) from error
    return CertificateFiles(chain, key, issued.authority)


def _names(host: str) -> tuple[str, ...]:
    """Return by what else others reach this machine, where it listens to them."""
    if is_loopback(host):  # a laptop's own name changes with its network, and copies of the file are to stay good
        return ()
    own = socket.gethostname()
    found = (own, "" if host in ("0.0.0.0", "::") else host)  # noqa: S104 - compared with, not listened on
    return tuple(name for name in found if name and name.isascii())


def write_kubeconfig(directory: Path, url: str, authority: bytes, token: str | None) -> Path:
    """Write the file, for its owner only, and return its path.

    Args:
        directory: The data directory.
        url: Where the server listens.
        authority: PEM text of what clients have to trust.
        token: What it asks for; None: nothing.
    """
    cluster = {"server": url, "certificate-authority-data": base64.b64encode(authority).decode()}
    context = {"cluster": _CONTEXT, "user": _CONTEXT, "namespace": DEFAULT_NAMESPACE}
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _CONTEXT,
        "clusters": [{"name": _CONTEXT, "cluster": cluster}],
        "contexts": [{"name": _CONTEXT, "context": context}],
        "users": [{"name": _CONTEXT, "user": {"token": token} if token else {}}],
    }
    path = directory / KUBECONFIG
    write_privately(path, yaml.safe_dump(config, sort_keys=False))
    return path


def earlier_port(directory: Path) -> int:
    """Return the port that the file names, so that copies of it lead here again; 0 where there is none."""
    try:
        config = yaml.safe_load((directory / KUBECONFIG).read_text())
        return urlsplit(config["clusters"][0]["cluster"]["server"]).port or 0
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        return 0


def line_to_copy(directory: Path) -> str:
    """Return the line of a shell by which clients find the server of a data directory.

    Raises:
        NotFoundError: None has run there.
    """
    path = (directory / KUBECONFIG).absolute()
    if not path.is_file():
        raise NotFoundError(f"{path}: there is no such file; start `katib serve`, which writes it")
    return f"export KUBECONFIG={shlex.quote(str(path))}"
