"""Whom API servers trust when they call a webhook: the `caBundle` of the webhook configurations."""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from typing import Any

from katib.errors import ConflictError, NotFoundError
from katib.runtime.objects import Key, Kind, Object, ObjectStore

MUTATING = Kind("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
VALIDATING = Kind("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")

_ATTEMPTS = 5

_LOG = logging.getLogger(__name__)


class CaBundle:
    """Writes the bundle into every webhook of the configurations of one name.

    Args:
        store: Keeps the configurations.
        name: Their name.
        kinds: Which configurations there are.
    """

    def __init__(self, store: ObjectStore, name: str, kinds: Sequence[Kind] = (MUTATING, VALIDATING)) -> None:
        self._store = store
        self._name = name
        self._kinds = tuple(kinds)

    def publish(self, bundle: bytes) -> None:
        """Make every webhook trust the bundle. Costs a read of each configuration when they do already.

        A configuration that does not exist is passed over: no webhook is called through it.

        Raises:
            UnavailableError: A configuration cannot be read or written now, or changes faster than it can be written.
            ForbiddenError: The right to do so is missing.
        """
        for kind in self._kinds:
            self._publish(kind, base64.b64encode(bundle).decode())

    def _publish(self, kind: Kind, text: str) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                obj = self._store.get(kind, Key("", self._name))
                if (trusting := _trusting(obj, text)) is not None:
                    self._store.update(trusting)
                    _LOG.info("webhooks trust the new certificates", extra={"kind": kind.kind, "object": self._name})
            except NotFoundError:
                return
            except ConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            return


def _trusting(obj: Object, text: str) -> dict[str, Any] | None:
    """Return the configuration with the bundle in every webhook, None when it is there already."""
    webhooks = obj.get("webhooks") or []
    if all((webhook.get("clientConfig") or {}).get("caBundle") == text for webhook in webhooks):
        return None
    changed = [
        {**webhook, "clientConfig": {**(webhook.get("clientConfig") or {}), "caBundle": text}} for webhook in webhooks
    ]
    return {**obj, "webhooks": changed}
