"""Admission reviews over HTTPS: the protocol, JSON patches, and certificates that renew themselves.

Belongs here: what any webhook needs. Does not belong here: what is decided about an object; handlers are given.
"""

from __future__ import annotations

from katib.cluster.admission.ca_bundle import CaBundle
from katib.cluster.admission.certificate_files import CertificateFiles
from katib.cluster.admission.certificate_secret import CertificateSecret, Terms
from katib.cluster.admission.certificates import Certificate, CertificateSource, dns_names
from katib.cluster.admission.reviews import ALLOWED, Handler, Review, Verdict
from katib.cluster.admission.server import AdmissionServer

__all__ = [
    "ALLOWED",
    "AdmissionServer",
    "CaBundle",
    "Certificate",
    "CertificateFiles",
    "CertificateSecret",
    "CertificateSource",
    "Handler",
    "Review",
    "Terms",
    "Verdict",
    "dns_names",
]
