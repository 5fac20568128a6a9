"""Who leads: one at a time, the next one soon after the last one left or went silent."""

from __future__ import annotations

import threading

import pytest

from katib.engine.runtime.objects import Key, ObjectStore
from katib.errors import UnavailableError
from katib.places.cluster.leader.lease import LEASE, Leadership, LeaseTimes
from katib.places.cluster.leader.stores import FencedStore
from tests.support.clock import VirtualClock
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.stores import CONFIG_MAP, widget
from tests.support.waiting import eventually

KEY = Key("kubeflow", "katib-controller")
TIMES = LeaseTimes()
MOMENT = 0.001


class Bench:
    """Contenders for one lease, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(frozenset())
        self.lost = threading.Event()
        self.failure: Exception | None = None
        self.first = self.contender("first")
        self.second = self.contender("second", self.store)

    def contender(self, name: str, store: ObjectStore | None = None) -> Leadership:
        """Return one that looks only when told to; its store fails when the test says so, unless it has another."""
        faulty = FaultyStore(self.store, lambda call: self.failure if call.before else None)
        return Leadership(store or faulty, KEY, name, self.clock, times=TIMES, on_lost=self.lost.set)

    def holder(self) -> str:
        return str(self.store.get(LEASE, KEY)["spec"]["holderIdentity"])

    def let_look(self, contender: Leadership) -> bool:
        contender._contend()
        return contender.is_leading

    def let_time_pass(self) -> None:
        """Let the only contender with a thread look once more."""
        eventually(lambda: self.clock.waiting_count == 1)
        self.clock.advance(TIMES.retry_seconds)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_contender_leads_and_the_second_waits(bench: Bench) -> None:
    assert bench.let_look(bench.first)
    for _ in range(20):  # longer than the lease: renewals keep it
        assert not bench.let_look(bench.second)
        bench.clock.advance(TIMES.retry_seconds)
        assert bench.let_look(bench.first)


def test_a_lease_that_is_given_back_is_taken_at_once(bench: Bench) -> None:
    bench.first.start()
    assert bench.first.wait_until_leading(60)
    assert not bench.let_look(bench.second)
    bench.first.stop()

    assert bench.let_look(bench.second)
    assert bench.holder() == "second"
    assert bench.store.get(LEASE, KEY)["spec"]["leaseTransitions"] == 2
    bench.second.stop()
    assert bench.holder() == ""


def test_a_silent_holder_stops_trusting_its_lease_before_it_is_replaced(bench: Bench) -> None:
    bench.let_look(bench.first)
    bench.let_look(bench.second)
    bench.clock.advance(TIMES.trust_seconds - MOMENT)
    assert bench.first.is_leading
    bench.clock.advance(MOMENT)
    assert not bench.first.is_leading

    bench.clock.advance(TIMES.lease_seconds - TIMES.trust_seconds)
    assert not bench.let_look(bench.second)
    bench.clock.advance(MOMENT)
    assert bench.let_look(bench.second)


def test_who_sees_another_holder_does_not_lead_from_then_on(bench: Bench) -> None:
    bench.let_look(bench.first)
    lease = bench.store.get(LEASE, KEY)
    bench.store.update({**lease, "spec": {**lease["spec"], "holderIdentity": "second"}})

    assert bench.first.is_leading
    assert not bench.let_look(bench.first)


@pytest.mark.parametrize("failure", [UnavailableError("cut off"), ValueError("no such token")], ids=["away", "bug"])
def test_a_holder_that_cannot_renew_notices_the_loss_whatever_the_cause(bench: Bench, failure: Exception) -> None:
    bench.first.start()
    assert bench.first.wait_until_leading(60)
    bench.failure = failure
    for _ in range(4):
        bench.let_time_pass()
    eventually(lambda: bench.clock.waiting_count == 1)
    assert not bench.lost.is_set()

    bench.let_time_pass()

    assert bench.lost.wait(60)
    bench.first.stop()


def test_what_a_holder_does_after_its_trust_ended_is_refused() -> None:
    leads = [True]
    fenced = FencedStore(MemoryStore(frozenset()), lambda: leads[0])
    made = fenced.create(widget("a", kind=CONFIG_MAP, data={"x": "1"}))
    leads[0] = False

    for write in (
        lambda: fenced.create(widget("b", kind=CONFIG_MAP)),
        lambda: fenced.update({**made, "data": {"x": "2"}}),
        lambda: fenced.update_status(made),
        lambda: fenced.delete(CONFIG_MAP, Key("team", "a")),
    ):
        with pytest.raises(UnavailableError):
            write()
    assert fenced.get(CONFIG_MAP, Key("team", "a"))["data"] == {"x": "1"}
    assert len(fenced.list(CONFIG_MAP).items) == 1
