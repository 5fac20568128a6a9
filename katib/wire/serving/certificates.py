"""Serving certificates: their form, their creation, and the protocol of their sources. No I/O.

Every certificate is signed by an authority of its own, whose key is discarded immediately: it cannot sign anything
later, and callers trust exactly one certificate.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from katib.errors import InvalidError, invalid

AUTHORITY_NAME = "katib-ca"
ORGANIZATION = "katib"

BACKDATE = timedelta(minutes=5)
"""Certificates become valid slightly in the past, because callers' clocks may be behind."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key, both as PEM text.

    Attributes:
        chain: The certificate to present, followed by those that lead to an authority, if any.
    """

    chain: bytes
    key: bytes

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a server.

        Raises:
            InvalidError: It is not a certificate, or the key does not match.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The library reads only files; these never touch a disk, which may be read-only.
        chain, key = _memory_file(self.chain), _memory_file(self.key)
        try:
            context.load_cert_chain(f"/proc/self/fd/{chain}", f"/proc/self/fd/{key}")
        except (ssl.SSLError, ValueError) as error:
            raise _broken(str(error)) from error
        finally:
            os.close(chain)
            os.close(key)
        return context

    def leaf(self) -> x509.Certificate:
        """Return the presented certificate.

        Raises:
            InvalidError: It is not a certificate.
        """
        try:
            return x509.load_pem_x509_certificates(self.chain)[0]
        except ValueError as error:
            raise _broken(str(error)) from error

    def __repr__(self) -> str:
        return "Certificate(...)"


class CertificateSource(Protocol):
    """Source of the certificate to serve."""

    @property
    def is_published(self) -> bool:
        """Whether its authority is published to callers, as far as this source does that."""

    def refresh(self) -> Certificate:
        """Bring the certificate up to date and return it. Called at start and every few seconds, from one thread.

        Raises:
            KatibError: There is none now, or the new one is broken; the current one stays in use.
        """


@dataclass(frozen=True, slots=True)
class Issued:
    """A new certificate, and the authority that callers have to trust."""

    certificate: Certificate
    authority: bytes


def dns_names(service: str, namespace: str) -> tuple[str, ...]:
    return (f"{service}.{namespace}.svc", f"{service}.{namespace}", service)


def issue(names: Sequence[str], now: datetime, lifetime: timedelta) -> Issued:
    """Create a certificate, and an authority that signs nothing else.

    Args:
        names: Its DNS names and IP addresses.
        now: Time of creation.
        lifetime: Validity from then on.
    """
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    until = now + lifetime
    authority = _authority(authority_key, now - BACKDATE, until)
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION)])
    leaf = (
        _builder(subject, authority.subject, key.public_key(), now - BACKDATE, until)
        .add_extension(x509.SubjectAlternativeName([*map(_general_name, names)]), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Issued(Certificate(leaf.public_bytes(pem), private), authority.public_bytes(pem))


def is_sound(certificate: Certificate, bundle: bytes, names: Sequence[str], now: datetime) -> bool:
    """Return whether a certificate can be served: valid now, for these names, with its key, signed by the bundle."""
    try:
        certificate.context()
        leaf = certificate.leaf()
        authorities = x509.load_pem_x509_certificates(bundle)
    except (InvalidError, ValueError):
        return False
    return (
        leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc
        and set(names) <= _names_of(leaf)
        and any(_is_signed_by(leaf, authority) for authority in authorities)
    )


def authorities_in(bundle: bytes) -> list[bytes]:
    """Return each certificate of a bundle separately; empty if it is broken."""
    try:
        return [found.public_bytes(serialization.Encoding.PEM) for found in x509.load_pem_x509_certificates(bundle)]
    except ValueError:
        return []


def signers_of(certificate: Certificate, bundle: bytes) -> list[bytes]:
    """Return the authorities in a bundle that signed a certificate."""
    leaf = certificate.leaf()
    return [pem for pem in authorities_in(bundle) if _is_signed_by(leaf, x509.load_pem_x509_certificate(pem))]


def _authority(key: ec.EllipticCurvePrivateKey, since: datetime, until: datetime) -> x509.Certificate:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, AUTHORITY_NAME),
        ]
    )
    return (
        _builder(name, name, key.public_key(), since, until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, since: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(leaf: x509.Certificate) -> set[str]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}


def _is_signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _memory_file(content: bytes) -> int:
    descriptor = os.memfd_create("certificate")
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _broken(cause: str) -> InvalidError:
    remedy = "give a certificate and its own key as PEM text"
    return invalid("certificate", f"it cannot be served: {cause}", remedy, "certificate-broken")
