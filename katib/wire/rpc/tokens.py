"""Tokens for the observation log, signed with the key of the installation.

A token is readable text, `katib1:ROLE:NAMESPACE:TRIAL:SIGNATURE`, whose signature (HMAC-SHA256) covers everything
before it. No part can contain a colon, so no two claims share a text. Tokens are not stored: a token is valid while its
key is, and only for the trial or the namespace that it names.

Anyone with the key can sign a token for any role; it stays with the controller and the DB manager.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, urlencode

TOKEN_VARIABLE = "KATIB_DB_MANAGER_TOKEN"  # noqa: S105 - the name of a variable, not a token
"""Passes a program its token."""
METADATA_KEY = "katib-token"
"""Not `authorization`: a mesh would take its content for a token of its own and refuse the call."""

MIN_KEY_BYTES = 16

_VERSION = "katib1"
_PURPOSE = b"katib observation log\n"
"""Included in the signature, so that it has no meaning to any other program that uses this key."""


class CallerRole(StrEnum):
    """Role of a caller.

    TRIAL: report and read the readings of one trial. READER: read those of a namespace, or of all without one.
    CONTROLLER: full access to the logs of a namespace, or of all without one.
    """

    TRIAL = "trial"
    READER = "reader"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """The identity that a token proves."""

    role: CallerRole
    namespace: str = ""
    trial: str = ""


class TokenSigner:
    """Signs and verifies the tokens of an installation.

    Args:
        keys: The first one signs, all are accepted: a replaced key stays valid for the trials that still run.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("no key to sign with")
        self._keys = tuple(keys)

    def __repr__(self) -> str:
        return f"<TokenSigner of {len(self._keys)} keys>"  # never the keys

    def token_of(self, claims: TokenClaims) -> str:
        text = f"{_VERSION}:{claims.role}:{claims.namespace}:{claims.trial}"
        return f"{text}:{_signature(self._keys[0], text)}"

    def claims_of(self, token: str) -> TokenClaims | None:
        """Return the claims of a token; None if it was not issued by this installation."""
        text, _, signature = token.rpartition(":")
        given = signature.encode(errors="replace")
        if not any(hmac.compare_digest(_signature(key, text).encode(), given) for key in self._keys):
            return None
        _, role, namespace, trial = text.split(":")
        return TokenClaims(CallerRole(role), namespace, trial)


def _signature(key: bytes, text: str) -> str:
    return hmac.new(key, _PURPOSE + text.encode(errors="replace"), hashlib.sha256).hexdigest()


# The address to which a program posts its status, and the variables in which it finds it.

URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
TOKEN_FILE_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable, not a token
AUTHORITIES_VARIABLE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
PATH, END, METRIC = "/trials/", "/status", "metric"


def path_of(trial_name: str, metrics: Collection[str]) -> str:
    """Return the path, with a query, for a trial's status; these metrics are stored."""
    return f"{PATH}{quote(trial_name)}{END}?{urlencode({METRIC: sorted(metrics)}, doseq=True)}"
