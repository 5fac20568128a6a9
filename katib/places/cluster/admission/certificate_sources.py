"""Sources of webhook certificates, and publication of the authorities that callers trust.

`MountedCertificate` reads them from a directory. `CertificateSecret` issues and renews them, and keeps them in a Secret
so that all replicas serve the same one; `CaBundle` publishes their authorities in the webhook configurations.

    valid, not due       keep
    valid, due           prepare: the next certificate goes into the Secret beside the current one; callers are made to
        trust the authorities of both
    prepared long enough promote: the next one becomes the current one; callers still trust both authorities
    anything else        replace: a new one is current at once

Callers trust the certificate of every replica at any time. Decisions depend on the Secret and the clock alone, and
writes compare and set, so that replicas that decide concurrently adopt the first write.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    KatibError,
    NotFoundError,
    UnavailableError,
    invalid,
)
from katib.wire.serving.certificates import (
    BACKDATE,
    Certificate,
    authorities_in,
    is_sound,
    issue,
    signers_of,
)

MUTATING = Kind("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
VALIDATING = Kind("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")

CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"

SECRET = Kind("v1", "Secret")

LIFETIME = timedelta(days=365)
RENEW_BEFORE = timedelta(days=120)
PUBLISH_FOR = timedelta(minutes=1)
"""Time for callers to learn the new authorities. They watch the configurations, so it takes them seconds."""

_EMPTY = Certificate(b"", b"")
_ATTEMPTS = 5

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CaBundle:
    """Writes the bundle into every webhook of the configurations with one name."""

    store: ObjectStore
    name: str

    def publish(self, bundle: bytes) -> None:
        """Make every webhook trust the bundle. Costs one read per configuration if they do already.

        A missing configuration is skipped: no webhook is called through it.

        Raises:
            UnavailableError: A configuration cannot be read or written now, or changes too often.
            ForbiddenError: The necessary right is missing.
        """
        for kind in (MUTATING, VALIDATING):
            self._publish(kind, base64.b64encode(bundle).decode())

    def _publish(self, kind: Kind, text: str) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                obj = self.store.get(kind, Key("", self.name))
                if (trusting := _trusting(obj, text)) is not None:
                    self.store.update(trusting)
                    _LOG.info("webhooks trust the new certificates", extra={"kind": kind.kind, "object": self.name})
            except NotFoundError:
                return
            except ConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            return


def _trusting(obj: Object, text: str) -> dict[str, Any] | None:
    """Return the configuration with the bundle in every webhook, None if nothing changes."""
    webhooks = obj.get("webhooks") or []
    if all((webhook.get("clientConfig") or {}).get("caBundle") == text for webhook in webhooks):
        return None
    changed = [
        {**webhook, "clientConfig": {**(webhook.get("clientConfig") or {}), "caBundle": text}} for webhook in webhooks
    ]
    return {**obj, "webhooks": changed}


class MountedCertificate:
    """A certificate in two files, `tls.crt` and `tls.key`.

    Args:
        directory: Directory of the files. They may appear later and be replaced at any time.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def is_published(self) -> bool:
        """Whether the authorities are published: always, since the program that writes the files publishes them."""
        return True

    def refresh(self) -> Certificate:
        """Return the current content of the files.

        Raises:
            UnavailableError: The files do not exist.
            InvalidError: Certificate and key do not match, as between two writes.
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


@dataclass(frozen=True, slots=True)
class CertificateTerms:
    """Properties of issued certificates.

    Attributes:
        names: DNS names and IP addresses.
        renew_before: Time before expiry at which the next one is issued.
        publish_for: Time between preparing and serving the next one.
    """

    names: tuple[str, ...]
    lifetime: timedelta = LIFETIME
    renew_before: timedelta = RENEW_BEFORE
    publish_for: timedelta = PUBLISH_FOR


@dataclass(frozen=True, slots=True)
class SecretContent:
    """Content of the Secret.

    Attributes:
        bundle: The authorities to trust.
        following: The next certificate; None if none is prepared.
    """

    current: Certificate = _EMPTY
    bundle: bytes = b""
    following: Certificate | None = None


class SecretAction(Enum):
    """Next action on a Secret."""

    KEEP = "keep"
    PREPARE = "prepare"
    PROMOTE = "promote"
    REPLACE = "replace"


def next_step(kept: SecretContent, terms: CertificateTerms, now: datetime) -> SecretAction:
    following = kept.following
    is_prepared = following is not None and is_sound(following, kept.bundle, terms.names, now)
    if not is_sound(kept.current, kept.bundle, terms.names, now):
        return SecretAction.PROMOTE if is_prepared else SecretAction.REPLACE
    if following is not None and is_prepared:
        prepared = following.leaf().not_valid_before_utc + BACKDATE
        return SecretAction.PROMOTE if now >= prepared + terms.publish_for else SecretAction.KEEP
    return (
        SecretAction.PREPARE
        if now >= kept.current.leaf().not_valid_after_utc - terms.renew_before
        else SecretAction.KEEP
    )


def after(step: SecretAction, kept: SecretContent, terms: CertificateTerms, now: datetime) -> SecretContent:
    if step is SecretAction.PROMOTE and kept.following is not None:
        return SecretContent(kept.following, kept.bundle)
    if step is SecretAction.KEEP:
        return kept
    issued = issue(terms.names, now, terms.lifetime)
    if step is SecretAction.PREPARE:
        trusted = signers_of(kept.current, kept.bundle)
        return replace(kept, bundle=b"".join([*trusted, issued.authority]), following=issued.certificate)
    # Another replica may serve the previous one until its next refresh, so the authorities stay.
    return SecretContent(issued.certificate, b"".join([*authorities_in(kept.bundle)[-2:], issued.authority]))


@dataclass(slots=True, eq=False)
class CertificateSecret:
    """Source of certificates over a Secret, which it creates and renews: `CertificateSource`.

    Attributes:
        key: Namespace and name of the Secret. It may exist already, even empty.
        bundle: Publishes the authorities to callers.
        clock: Determines what is due.
    """

    store: ObjectStore
    key: Key
    terms: CertificateTerms
    bundle: CaBundle
    clock: Clock
    _last: SecretContent = field(default_factory=SecretContent, init=False)
    _complaint: str = field(default="", init=False)
    _published: bool = field(default=False, init=False)

    @property
    def is_published(self) -> bool:
        """Whether the webhook configurations trust the served certificate."""
        return self._published

    def refresh(self) -> Certificate:
        """Renew certificates that are due, publish their authorities, and return the one to serve.

        Raises:
            UnavailableError: The Secret cannot be read or written now.
            ForbiddenError: The necessary right is missing.
        """
        kept = self._settled()
        # During a short outage of the API server the published bundle remains.
        was_published = self._published and kept.current == self._last.current
        self._last = kept
        self._published = self._publish(kept) or was_published
        return kept.current

    def _settled(self) -> SecretContent:
        """Act until no action is due."""
        for _ in range(_ATTEMPTS):
            try:
                stored: Object | None = self.store.get(SECRET, self.key)
            except NotFoundError:
                stored = None
            kept = self._last if stored is None else read(stored)
            step = SecretAction.REPLACE if stored is None else next_step(kept, self.terms, self.clock.now())
            # A certificate must not be served before its authority is published.
            if step is SecretAction.KEEP or (step is SecretAction.PROMOTE and not self._publish(kept)):
                return kept
            following = after(step, kept, self.terms, self.clock.now())
            try:
                self._write(stored, following)
            except (AlreadyExistsError, ConflictError, NotFoundError):
                continue
            _LOG.info("certificate of the webhooks: %s", step.value, extra={"secret": str(self.key)})
            if step is not SecretAction.PROMOTE:
                return following
        raise UnavailableError(f"Secret {self.key}: it changes continually; find out which client writes it")

    def _publish(self, kept: SecretContent) -> bool:
        try:
            self.bundle.publish(kept.bundle)
        except KatibError as error:
            if (complaint := str(error)) != self._complaint:
                self._complaint = complaint
                _LOG.warning("the webhooks' authorities could not be published", extra={"cause": complaint})
            return False
        self._complaint = ""
        return True

    def _write(self, stored: Object | None, kept: SecretContent) -> None:
        if stored is None:
            metadata = {"namespace": self.key.namespace, "name": self.key.name}
            head = {"apiVersion": SECRET.api_version, "kind": SECRET.kind, "metadata": metadata}
            self.store.create({**head, "type": "kubernetes.io/tls", "data": written(kept)})
        else:
            foreign = {name: value for name, value in (stored.get("data") or {}).items() if name not in _FIELDS}
            self.store.update({**stored, "data": {**foreign, **written(kept)}})


_FIELDS: Sequence[str] = ("tls.crt", "tls.key", "ca.crt", "next.crt", "next.key")


def read(secret: Object) -> SecretContent:
    """Return the content of a Secret; unreadable fields are empty."""
    crt, key, bundle, next_crt, next_key = (_decoded(secret, name) for name in _FIELDS)
    return SecretContent(
        Certificate(crt, key), bundle, Certificate(next_crt, next_key) if next_crt or next_key else None
    )


def written(kept: SecretContent) -> dict[str, Any]:
    following = kept.following or _EMPTY
    contents = (kept.current.chain, kept.current.key, kept.bundle, following.chain, following.key)
    return {
        name: base64.b64encode(content).decode() for name, content in zip(_FIELDS, contents, strict=True) if content
    }


def _decoded(secret: Object, name: str) -> bytes:
    try:
        return base64.b64decode((secret.get("data") or {}).get(name) or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        return b""
