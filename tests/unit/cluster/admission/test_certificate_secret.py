from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from katib.engine.runtime.objects import Key, Kind
from katib.errors import ConflictError, ForbiddenError, UnavailableError
from katib.places.cluster.admission.certificate_sources import (
    MUTATING,
    SECRET,
    VALIDATING,
    CaBundle,
    CertificateSecret,
    CertificateTerms,
    SecretContent,
    read,
)
from katib.wire.serving.certificates import Certificate, authorities_in, dns_names, is_sound, issue
from tests.support.clock import VirtualClock
from tests.support.faulty_store import Call, FaultyStore
from tests.support.memory_store import MemoryStore

DAY = timedelta(days=1).total_seconds()
KEY = Key("kubeflow", "katib-webhook-cert")
NAME = "katib.kubeflow.org"
TERMS = CertificateTerms(
    dns_names("katib-controller", "kubeflow"), timedelta(days=30), timedelta(days=10), timedelta(minutes=1)
)


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = FaultyStore(MemoryStore(frozenset(), clock=self.clock), self._interfere)
        self.before_write: Callable[[], object] = lambda: None
        self.before_get: Callable[[Kind], object] = lambda _kind: None
        for kind in (MUTATING, VALIDATING):
            self.store.create(configuration(kind))

    def replica(self, terms: CertificateTerms = TERMS) -> CertificateSecret:
        return CertificateSecret(self.store, KEY, terms, CaBundle(self.store, NAME), self.clock)

    def _interfere(self, call: Call) -> None:
        """Have something else happen right before a read, and once before a write."""
        if call.before and call.verb == "get":
            self.before_get(call.kind)
        elif call.before and call.verb in ("create", "update"):
            action, self.before_write = self.before_write, lambda: None
            action()

    def kept(self) -> SecretContent:
        return read(self.store.get(SECRET, KEY))

    def edit(self, **data: str) -> None:
        secret = self.store.get(SECRET, KEY)
        self.store.update({**secret, "data": {**secret["data"], **data}})

    def bundles(self) -> list[bytes]:
        """Return what each webhook trusts."""
        configurations = [self.store.get(kind, Key("", NAME)) for kind in (MUTATING, VALIDATING)]
        return [
            base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
            for config in configurations
            for webhook in config["webhooks"]
        ]

    def is_trusted(self, certificate: Certificate) -> bool:
        return all(is_sound(certificate, bundle, TERMS.names, self.clock.now()) for bundle in self.bundles())


def configuration(kind: Kind) -> dict[str, Any]:
    service = {"namespace": "kubeflow", "name": "katib-controller"}
    webhooks = [{"name": f"{letter}.katib", "clientConfig": {"service": service}} for letter in "ab"]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": NAME}, "webhooks": webhooks}


@pytest.fixture
def world() -> World:
    return World()


def test_a_first_certificate_is_made_stored_and_trusted(world: World) -> None:
    certificate = world.replica().refresh()

    secret = world.store.get(SECRET, KEY)
    assert secret["type"] == "kubernetes.io/tls"
    assert sorted(secret["data"]) == ["ca.crt", "tls.crt", "tls.key"]
    assert world.kept().current == certificate
    assert world.is_trusted(certificate)


def test_a_certificate_is_published_once_callers_know_it_and_stays_so_while_they_cannot_be(world: World) -> None:
    def refuse(kind: Kind) -> None:
        if kind in (MUTATING, VALIDATING):
            raise ForbiddenError("no right")

    replica = world.replica()
    world.before_get = refuse
    replica.refresh()
    untold = replica.is_published
    world.before_get = lambda _kind: None
    replica.refresh()
    told = replica.is_published
    world.before_get = refuse
    replica.refresh()

    assert (untold, told, replica.is_published) == (False, True, True)


def test_whoever_looks_again_serves_the_same_certificate_and_writes_nothing(world: World) -> None:
    replica = world.replica()
    certificate = replica.refresh()
    before = world.store.list(SECRET).resource_version

    assert replica.refresh() == world.replica().refresh() == certificate
    assert world.store.list(SECRET).resource_version == before


def test_two_replicas_that_start_at_once_agree_on_the_first_ones(world: World) -> None:
    first: list[Certificate] = []
    world.before_write = lambda: first.append(world.replica().refresh())

    assert world.replica().refresh() == first[0]
    assert world.is_trusted(first[0])


def test_an_empty_secret_of_the_installation_is_filled_and_what_others_wrote_there_stays(world: World) -> None:
    metadata = {"namespace": KEY.namespace, "name": KEY.name, "labels": {"app": "katib"}}
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    world.store.create({**head, "type": "Opaque", "data": {"note": "aGk="}})

    certificate = world.replica().refresh()

    secret = world.store.get(SECRET, KEY)
    assert (secret["type"], secret["metadata"]["labels"]) == ("Opaque", {"app": "katib"})
    assert secret["data"]["note"] == "aGk="
    assert world.is_trusted(certificate)


def test_the_next_certificate_is_trusted_before_it_is_served(world: World) -> None:
    replica = world.replica()
    first = replica.refresh()
    world.clock.advance(20 * DAY)

    assert replica.refresh() == first
    following = world.kept().following
    assert following is not None
    assert world.is_trusted(first)
    assert world.is_trusted(following)

    world.clock.advance(59)
    assert replica.refresh() == first

    world.clock.advance(1)
    assert replica.refresh() == following
    assert world.kept().following is None
    assert world.is_trusted(first)
    assert world.is_trusted(following)


def test_a_replica_that_lags_behind_stays_trusted_through_ten_renewals(world: World) -> None:
    leader, laggard = world.replica(), world.replica()
    served = laggard.refresh()
    for _ in range(10):
        world.clock.advance(20 * DAY)
        leader.refresh()
        world.clock.advance(60)
        leader.refresh()
        assert world.is_trusted(served)
        served = laggard.refresh()
        assert world.is_trusted(served)

    assert len(authorities_in(world.kept().bundle)) == 2


def test_two_replicas_that_prepare_at_once_prepare_one_certificate(world: World) -> None:
    replica, other = world.replica(), world.replica()
    replica.refresh()
    world.clock.advance(20 * DAY)
    world.before_write = other.refresh

    replica.refresh()

    assert len(authorities_in(world.kept().bundle)) == 2
    following = world.kept().following
    assert following is not None
    assert world.is_trusted(following)


def test_nothing_is_served_while_callers_cannot_learn_to_trust_it(world: World) -> None:
    replica = world.replica()
    first = replica.refresh()
    world.clock.advance(20 * DAY)
    world.before_get = unavailable_configurations
    replica.refresh()
    world.clock.advance(3600)

    assert replica.refresh() == first

    world.before_get = lambda _kind: None
    assert replica.refresh() != first
    assert world.is_trusted(replica.refresh())


FOREIGN_KEY = issue(TERMS.names, datetime.now(UTC), TERMS.lifetime).certificate.key


@pytest.mark.parametrize("field", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize(
    "content",
    ["", "%%%", *(base64.b64encode(wrong).decode() for wrong in (b"no certificate", FOREIGN_KEY))],
    ids=["empty", "not-base64", "no-certificate", "another-key"],
)
def test_a_broken_secret_is_replaced_at_once(world: World, field: str, content: str) -> None:
    world.replica().refresh()
    world.edit(**{field: content})

    assert world.is_trusted(world.replica().refresh())


@pytest.mark.parametrize(
    ("terms", "age"), [(TERMS, 31), (CertificateTerms(("elsewhere",)), 0)], ids=["expired", "other-names"]
)
def test_a_certificate_that_is_not_good_any_more_is_replaced_at_once(
    world: World, terms: CertificateTerms, age: int
) -> None:
    first = world.replica(terms).refresh()
    world.clock.advance(age * DAY)

    second = world.replica().refresh()

    assert second != first
    assert world.is_trusted(second)


def test_a_deleted_secret_comes_back_and_what_replicas_serve_meanwhile_stays_trusted(world: World) -> None:
    replica, other = world.replica(), world.replica()
    first = replica.refresh()
    other.refresh()
    world.store.delete(SECRET, KEY)

    second = replica.refresh()

    assert second != first
    assert world.is_trusted(first)
    assert other.refresh() == second


@pytest.mark.parametrize("is_new", [False, True], ids=["reset", "created later"])
def test_a_configuration_without_the_bundle_gets_it(world: World, *, is_new: bool) -> None:
    replica = world.replica()
    certificate = replica.refresh()
    if is_new:
        world.store.delete(MUTATING, Key("", NAME))
        world.store.create(configuration(MUTATING))
    else:
        found = world.store.get(MUTATING, Key("", NAME))
        world.store.update({**found, "webhooks": configuration(MUTATING)["webhooks"]})
    assert not world.is_trusted(certificate)

    replica.refresh()

    assert world.is_trusted(certificate)


def test_a_configuration_changed_meanwhile_keeps_that_change(world: World) -> None:
    def label() -> None:
        obj = world.store.get(MUTATING, Key("", NAME))
        world.store.update({**obj, "metadata": {**obj["metadata"], "labels": {"by": "somebody"}}})

    world.before_write = lambda: setattr(world, "before_write", label)  # the first write is the Secret's

    certificate = world.replica().refresh()

    assert world.store.get(MUTATING, Key("", NAME))["metadata"]["labels"] == {"by": "somebody"}
    assert world.is_trusted(certificate)


def test_a_secret_that_changes_all_the_time_is_an_error_that_passes(world: World) -> None:
    def conflict() -> None:
        world.before_write = conflict
        raise ConflictError("somebody was faster")

    world.before_write = conflict

    with pytest.raises(UnavailableError, match="katib-webhook-cert"):
        world.replica().refresh()


def unavailable_configurations(kind: Kind) -> None:
    if kind in (MUTATING, VALIDATING):
        raise UnavailableError("the API server does not answer")
