"""Who leads: one at a time, the next one soon after the last one left or went silent."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from katib.api.metrics import ZERO_TIME, MetricLog
from katib.cluster.leader.fencing import FencedLog, FencedStore
from katib.cluster.leader.lease import LEASE, Leadership, LeaseTimes
from katib.errors import UnavailableError
from katib.observations.memory import MemoryObservationLog
from katib.runtime.clock import SystemClock
from katib.runtime.objects import Key
from katib.stores.memory import MemoryStore
from tests.support.faulty_store import FaultyStore
from tests.support.stores import CONFIG_MAP, eventually, widget

KEY = Key("kubeflow", "katib-controller")
FAST = LeaseTimes(lease_seconds=0.6, trust_seconds=0.4, retry_seconds=0.05)


def contender(store: MemoryStore | FaultyStore, name: str, on_lost: Callable[[], None] = lambda: None) -> Leadership:
    return Leadership(store, KEY, name, SystemClock(), times=FAST, on_lost=on_lost)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(frozenset())


def holder(store: MemoryStore) -> str:
    return str(store.get(LEASE, KEY)["spec"]["holderIdentity"])


def test_the_first_contender_leads_and_the_second_waits(store: MemoryStore) -> None:
    first, second = contender(store, "first"), contender(store, "second")
    first.start()
    led = first.wait_until_leading(5.0)
    second.start()
    second_led = second.wait_until_leading(1.0)  # longer than the lease: renewals keep it

    first.stop()
    second.stop()
    assert led
    assert not second_led


def test_a_lease_that_is_given_back_is_taken_at_once(store: MemoryStore) -> None:
    first, second = contender(store, "first"), contender(store, "second")
    first.start()
    first.wait_until_leading(5.0)
    second.start()
    first.stop()

    assert second.wait_until_leading(0.4)  # sooner than an unreturned lease would end
    assert holder(store) == "second"
    assert store.get(LEASE, KEY)["spec"]["leaseTransitions"] == 2
    second.stop()
    assert holder(store) == ""


def test_a_silent_holder_is_replaced_and_stops_trusting_its_lease_first(store: MemoryStore) -> None:
    cut: list[str] = []
    faulty = FaultyStore(store, lambda call: UnavailableError("cut off") if cut and call.before else None)
    lost: list[float] = []
    first, second = contender(faulty, "first", lambda: lost.append(1.0)), contender(store, "second")
    first.start()
    first.wait_until_leading(5.0)
    second.start()
    cut.append("now")

    assert second.wait_until_leading(5.0)
    assert not first.is_leading
    eventually(lambda: lost == [1.0])
    first.stop()
    second.stop()


def test_a_holder_that_meets_what_nobody_foresaw_goes_on_to_notice_the_loss(store: MemoryStore) -> None:
    broken: list[str] = []
    faulty = FaultyStore(store, lambda call: ValueError("no such token") if broken and call.before else None)
    lost = threading.Event()
    holder = contender(faulty, "first", lost.set)
    holder.start()
    holder.wait_until_leading(5.0)
    broken.append("now")

    assert lost.wait(5.0)
    holder.stop()


def test_who_does_not_lead_any_more_removes_no_readings() -> None:
    leads = [True]
    log = MemoryObservationLog()
    fenced = FencedLog(log, lambda: leads[0])
    fenced.report("trial", [MetricLog(ZERO_TIME, "loss", "0.5")])
    leads[0] = False

    with pytest.raises(UnavailableError, match="does not lead"):
        fenced.delete("trial")
    with pytest.raises(UnavailableError, match="does not lead"):
        fenced.report("trial", [MetricLog(ZERO_TIME, "loss", "0.4")])
    observation = fenced.summarize("trial", ["loss"])
    assert observation is not None
    assert observation.metrics[0].latest == observation.metrics[0].min == "0.5"


def test_what_a_holder_does_after_its_trust_ended_is_refused(store: MemoryStore) -> None:
    leads = [True]
    fenced = FencedStore(store, lambda: leads[0])
    made = fenced.create(widget("a", kind=CONFIG_MAP, data={"x": "1"}))
    leads[0] = False

    for write in (
        lambda: fenced.create(widget("b", kind=CONFIG_MAP)),
        lambda: fenced.update({**made, "data": {"x": "2"}}),
        lambda: fenced.update_status(made),
        lambda: fenced.delete(CONFIG_MAP, Key("team", "a")),
    ):
        with pytest.raises(UnavailableError, match="does not lead"):
            write()
    assert fenced.get(CONFIG_MAP, Key("team", "a"))["data"] == {"x": "1"}
    assert len(fenced.list(CONFIG_MAP).items) == 1
