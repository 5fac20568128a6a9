"""Leader election among replicas of the controller, by a Lease.

Theory of operation. The holder renews the Lease every few seconds. The others watch whether the record changes, by
their own clocks: if it has stayed the same for the whole lease duration, the holder is gone and the Lease is free. Wall
clocks of two machines are never compared. The holder trusts its own Lease for a shorter time than others grant it, so
that a frozen or disconnected holder stops writing before another begins; `is_leading` tells at any time. Overlapping
writers would still do no harm: names of children are deterministic and writes compare and set.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.engine.runtime.periodic import PeriodicTasks
from katib.errors import AlreadyExistsError, ConflictError, KatibError, NotFoundError

LEASE = Kind("coordination.k8s.io/v1", "Lease")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times of leader election, in the proportions of Kubernetes' own controllers.

    Attributes:
        lease_seconds: How long others respect an unchanged record.
        trust_seconds: How long the holder trusts a renewal. Shorter, so that it stops first.
        retry_seconds: Interval of renewals, and of the others' checks.
    """

    lease_seconds: float = 15.0
    trust_seconds: float = 10.0
    retry_seconds: float = 2.0


class Leadership:
    """One contender for a Lease. A background thread contends and renews; `stop` releases the Lease.

    Args:
        key: Its namespace and name.
        identity: Unique name of the contender; two runs of one process need two.
        on_lost: Called once when a held Lease can no longer be trusted.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: Key,
        identity: str,
        clock: Clock,
        *,
        times: LeaseTimes | None = None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._key = key
        self._identity = identity
        self._clock = clock
        self._times = times or LeaseTimes()
        self._on_lost = on_lost
        self._trusted_until = float("-inf")
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._changed = threading.Condition()
        self._stopping = False
        self._led = self._lost = False
        self._looks = PeriodicTasks(
            "leadership", [self._renew], self._times.retry_seconds, clock, complaint="Lease not renewed"
        )

    @property
    def is_leading(self) -> bool:
        """Whether this contender holds the Lease now."""
        return self._clock.monotonic() < self._trusted_until

    def start(self) -> None:
        self._looks.wake()
        self._looks.start()

    def wait_until_leading(self, timeout_seconds: float | None = None) -> bool:
        """Wait until this contender holds the Lease; return whether it does."""
        with self._changed:
            self._changed.wait_for(lambda: self._led or self._stopping, timeout_seconds)
        return self.is_leading

    def stop(self) -> None:
        """Stop contending and release the Lease, so that the next contender need not wait for its expiry."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._looks.stop()
        if self.is_leading:
            self._release()
        self._trusted_until = float("-inf")

    # --- contending ---------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        """Contend once; after losing the Lease, do nothing."""
        if self._lost:
            return
        try:
            self._contend()
        finally:
            self._lost = self._led and not self.is_leading
            if self._lost:
                _log.error("Leadership lost", extra={"lease": str(self._key), "identity": self._identity})
                self._on_lost()

    def _contend(self) -> None:
        """Take or renew the Lease if possible."""
        asked_at = self._clock.monotonic()
        try:
            lease = self._store.get(LEASE, self._key)
        except NotFoundError:
            self._take(None, asked_at)
            return
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") != self._identity and not self._is_free(lease, asked_at):
            if self._led:
                self._trusted_until = float("-inf")  # another contender holds it: no need to wait out the trust
            return
        self._take(lease, asked_at)

    def _is_free(self, lease: Object, now: float) -> bool:
        spec = lease.get("spec") or {}
        if not spec.get("holderIdentity"):
            return True
        record = (spec["holderIdentity"], lease["metadata"]["resourceVersion"])
        if record != self._seen:
            self._seen, self._seen_at = record, now
        seconds = max(float(spec.get("leaseDurationSeconds") or 0), self._times.lease_seconds)
        return now - self._seen_at > seconds

    def _take(self, lease: Object | None, asked_at: float) -> None:
        try:
            if lease is None:
                self._store.create(self._record({"namespace": self._key.namespace, "name": self._key.name}, {}))
            else:
                self._store.update(self._record(dict(lease["metadata"]), dict(lease.get("spec") or {})))
        except (ConflictError, AlreadyExistsError, NotFoundError):
            return  # another contender was faster
        self._trusted_until = asked_at + self._times.trust_seconds
        if not self._led:
            _log.info("Leading", extra={"lease": str(self._key), "identity": self._identity})
            with self._changed:
                self._led = True
                self._changed.notify_all()

    def _record(self, metadata: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
        now = (
            self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        )  # with microseconds, as Leases hold it
        ours = old.get("holderIdentity") == self._identity
        spec = {
            **old,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._times.lease_seconds),
            "renewTime": now,
            "acquireTime": old.get("acquireTime", now) if ours else now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (not ours),
        }
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}

    def _release(self) -> None:
        try:
            lease = self._store.get(LEASE, self._key)
            spec = lease.get("spec") or {}
            if spec.get("holderIdentity") == self._identity:
                self._store.update({**lease, "spec": {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}})
        except KatibError as error:
            _log.warning("Lease not given back: %s", error, extra={"lease": str(self._key)})
