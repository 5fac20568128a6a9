"""Certificates from a directory that another program updates, such as cert-manager through a mounted Secret."""

from __future__ import annotations

from pathlib import Path

from katib.cluster.admission.certificates import Certificate
from katib.errors import InvalidError, UnavailableError, invalid

CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"


class CertificateFiles:
    """A certificate in two files, `tls.crt` and `tls.key`.

    Args:
        directory: Where they are. They may come later, and may be replaced at any time.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def is_published(self) -> bool:
        """Whether callers know whom to trust: always, since those who write the files tell them."""
        return True

    def refresh(self) -> Certificate:
        """Return what the files hold now.

        Raises:
            UnavailableError: The files are not there.
            InvalidError: Certificate and key do not belong together, as between two writes.
        """
        try:
            chain, key = ((self._directory / name).read_bytes() for name in (CERTIFICATE_FILE, KEY_FILE))
        except OSError as error:
            cause = f"{error.filename}: {error.strerror}"
            raise UnavailableError(f"{cause}; mount the Secret that cert-manager writes there") from error
        certificate = Certificate(chain, key)
        try:
            certificate.context()
        except InvalidError as error:
            found = error.errors[0]
            remedy = f"let {CERTIFICATE_FILE} and {KEY_FILE} be one pair"
            raise invalid(str(self._directory), found.cause, remedy, found.origin) from error
        return certificate
