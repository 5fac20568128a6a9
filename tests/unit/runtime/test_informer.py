from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import EventType, Key, Object
from katib.engine.runtime.shared_thread import SharedThread
from katib.errors import ExpiredError, InternalError, UnavailableError
from tests.support.clock import VirtualClock
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.stores import GADGET, WIDGET, changed, memory_store, widget, with_metadata
from tests.support.waiting import eventually, never


def colors(obj: Object) -> list[str]:
    color: str | None = obj.get("spec", {}).get("color")
    return [color] if color else []


def decode(obj: Object) -> Object:
    """Refuse what has a spec without color: a schema is broken."""
    if "spec" in obj and "color" not in obj["spec"]:
        raise ValueError("spec without color")
    return obj


class ColorCount:
    """A view: how many objects have each color."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def apply(self, old: Object | None, new: Object | None) -> None:
        self.counts.subtract(colors(old) if old else ())
        self.counts.update(colors(new) if new else ())


class Bench:
    """An informer of widgets on a store that fails on demand, with everything it tells written down."""

    def __init__(self, namespace: str | None = None, *, shared: bool = False, **options: Any) -> None:
        self.clock = VirtualClock()
        self.thread = SharedThread("shared", self.clock) if shared else None
        self.inner = memory_store(**options)
        self.store = FaultyStore(self.inner)
        self.refused: list[tuple[Key, str]] = []
        self.events: list[InformerEvent[Object]] = []
        self.view = ColorCount()
        self.informer = Informer(
            self.store,
            WIDGET,
            decode,
            lambda obj: next(iter(colors(obj)), None),
            namespace,
            on_decode_error=lambda obj, error: self.refused.append((Key.of(obj), str(error))),
            clock=self.clock,
            thread=self.thread,
        )
        self.informer.add_handler(self.events.append)
        self.informer.add_view(self.view)

    def start(self) -> None:
        if self.thread is not None:
            self.thread.start()
        self.informer.start()
        assert self.informer.wait_for_sync(10)

    def settle(self) -> None:
        """Wait until the cache shows what the store has."""
        eventually(lambda: list(self.informer.all()) == list(self.inner.list(WIDGET).items))

    def told(self) -> list[tuple[str, str]]:
        return [(event.type.value, event.key.name) for event in self.events]


@pytest.fixture(params=[False, True], ids=["own-thread", "shared-thread"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(shared=request.param)
    yield bench
    bench.informer.stop()
    if bench.thread is not None:
        bench.thread.stop()


def color(name: str, of: str, **fields: Any) -> dict[str, Any]:
    return widget(name, spec={"color": of}, **fields)


def test_it_shows_what_was_there_and_what_comes(bench: Bench) -> None:
    bench.inner.create(color("a", "red"))
    bench.start()
    assert [obj["metadata"]["name"] for obj in bench.informer.all()] == ["a"]

    bench.inner.create(color("b", "red"))
    bench.settle()

    key = Key("team", "b")
    assert bench.informer.get(key) == bench.inner.get(WIDGET, key)
    assert bench.informer.get(Key("team", "nobody")) is None
    assert bench.told() == [("ADDED", "a"), ("ADDED", "b")]


def test_handlers_get_before_and_after(bench: Bench) -> None:
    bench.start()
    made = bench.inner.create(color("a", "red"))
    after = bench.inner.update(changed(made, spec={"color": "blue"}))
    bench.inner.delete(WIDGET, Key("team", "a"))
    eventually(lambda: len(bench.events) == 3)

    key = Key("team", "a")
    assert bench.events == [
        InformerEvent(EventType.ADDED, key, None, made),
        InformerEvent(EventType.MODIFIED, key, made, after),
        InformerEvent(EventType.DELETED, key, after, None),
    ]


def test_it_is_synced_only_when_handlers_know_the_first_list(bench: Bench) -> None:
    told_at_sync = []
    bench.informer.add_handler(lambda _event: told_at_sync.append(bench.informer.has_synced()))
    bench.inner.create(color("a", "red"))
    bench.start()

    assert told_at_sync == [False]
    assert bench.informer.has_synced()


def test_an_index_answers_in_order_of_creation_whatever_moved_in_when(bench: Bench) -> None:
    made = {name: bench.inner.create(color(name, "red")) for name in "abc"}
    bench.start()
    for name in "cab":
        bench.inner.update(changed(made[name], spec={"color": "blue"}))
    bench.inner.create(color("d", "blue"))
    bench.settle()

    assert [obj["metadata"]["name"] for obj in bench.informer.group("blue")] == list("abcd")
    assert tuple(bench.informer.group("red")) == ()
    assert bench.informer.count("blue") == 4
    assert bench.informer.count("red") == 0


def test_a_deleted_object_leaves_the_index_and_its_namesake_comes_last(bench: Bench) -> None:
    for name in "abc":
        bench.inner.create(color(name, "red"))
    bench.start()
    bench.inner.delete(WIDGET, Key("team", "a"))
    bench.inner.create(color("a", "red"))
    bench.settle()

    assert [obj["metadata"]["name"] for obj in bench.informer.group("red")] == list("bca")


def test_a_view_tells_the_same_story_as_the_cache_at_any_moment(bench: Bench) -> None:
    mismatches = []
    done = threading.Event()

    def compare() -> None:
        while not done.is_set():
            with bench.informer.lock:
                seen = bench.informer.count("red"), bench.informer.count("blue")
                if (bench.view.counts["red"], bench.view.counts["blue"]) != seen:
                    mismatches.append(seen)

    bench.start()
    reader = threading.Thread(target=compare, daemon=True)
    reader.start()
    for number in range(100):
        made = bench.inner.create(color(f"w-{number}", "red"))
        bench.inner.update(changed(made, spec={"color": "blue"}))
        if number % 3 == 0:
            bench.inner.delete(WIDGET, Key("team", f"w-{number}"))
    bench.settle()
    done.set()
    reader.join(60)

    assert mismatches == []
    assert bench.view.counts == {"blue": 66, "red": 0}


def test_only_one_namespace_is_seen_when_asked_for(bench: Bench) -> None:
    narrow = Bench(namespace="one")
    narrow.inner.create(color("a", "red", namespace="one"))
    narrow.inner.create(color("b", "red", namespace="two"))
    narrow.start()
    narrow.inner.create(color("c", "red", namespace="two"))
    narrow.inner.create(color("d", "red", namespace="one"))
    eventually(lambda: narrow.told() == [("ADDED", "a"), ("ADDED", "d")])
    narrow.informer.stop()


def test_other_kinds_are_not_seen(bench: Bench) -> None:
    bench.start()
    bench.inner.create(widget("g", kind=GADGET))
    bench.inner.create(color("a", "red"))
    bench.settle()

    assert bench.told() == [("ADDED", "a")]


# --- trouble ----------------------------------------------------------------------------------------------------------


def test_an_object_that_cannot_be_decoded_is_reported_and_stops_nobody(bench: Bench) -> None:
    bench.inner.create(widget("bad", spec={}))
    bench.start()
    bench.inner.create(widget("worse", spec={}))
    bench.inner.create(color("good", "red"))
    eventually(lambda: bench.told() == [("ADDED", "good")])

    refusal = "spec without color"
    assert bench.refused == [(Key("team", "bad"), refusal), (Key("team", "worse"), refusal)]
    assert bench.informer.get(Key("team", "bad")) is None


def test_the_last_good_value_stays_when_an_object_goes_bad_and_is_replaced_when_mended(bench: Bench) -> None:
    good = bench.inner.create(color("a", "red"))
    bench.start()
    bad = bench.inner.update(changed(good, spec={}))
    eventually(lambda: bench.refused)
    assert bench.informer.get(Key("team", "a")) == good

    bench.inner.update(changed(bad, spec={"color": "blue"}))
    bench.settle()
    assert bench.told() == [("ADDED", "a"), ("MODIFIED", "a")]


def test_a_bad_object_can_still_go(bench: Bench) -> None:
    good = bench.inner.create(color("a", "red"))
    bench.start()
    bench.inner.update(changed(good, spec={}))
    bench.inner.delete(WIDGET, Key("team", "a"))
    eventually(lambda: bench.told() == [("ADDED", "a"), ("DELETED", "a")])

    assert tuple(bench.informer.all()) == ()
    assert bench.view.counts["red"] == 0


def test_a_decode_error_is_logged_when_nobody_asks_for_it(caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
    store = memory_store()
    store.create(widget("bad", spec={}))
    informer = Informer(store, WIDGET, decode)
    informer.start()
    assert informer.wait_for_sync(10)
    informer.stop()

    golden([record.getMessage() for record in caplog.records])


@pytest.mark.parametrize("what", ["handler", "view"])
def test_a_callback_that_fails_does_not_stop_the_informer(
    bench: Bench, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def apply(self, old: object, new: object) -> None:
            raise RuntimeError(old, new)

    def broken(event: object) -> None:
        raise RuntimeError(event)

    if what == "view":
        bench.informer.add_view(Broken())
    else:
        bench.informer.add_handler(broken)
    bench.start()
    bench.inner.create(color("a", "red"))
    eventually(lambda: bench.told() == [("ADDED", "a")])
    eventually(lambda: [record.getMessage() for record in caplog.records] == ["Callback failed"])


def test_nothing_is_lost_when_the_watch_breaks_between_any_two_changes(bench: Bench) -> None:
    """Every second read of the watch fails, half of them after the change was taken from the stream."""
    calls = 0

    def fail_on(call: Call) -> BaseException | None:
        nonlocal calls
        calls += call.verb == "next"
        return UnavailableError("line cut") if call.verb == "next" and calls % 3 == 0 else None

    logging.getLogger("katib.engine.runtime.informer").setLevel(logging.CRITICAL)
    bench.start()
    bench.store.fail_on = fail_on
    for number in range(30):
        bench.inner.create(color(f"w-{number}", "red"))
    pump(bench, lambda: len(bench.informer.all()) == 30)
    logging.getLogger("katib.engine.runtime.informer").setLevel(logging.NOTSET)

    assert bench.told() == [("ADDED", f"w-{number}") for number in range(30)]


def pump(bench: Bench, check: Callable[[], bool]) -> None:
    """Let back-offs pass until a check holds."""

    def step() -> bool:
        bench.clock.advance(60)
        return check()

    eventually(step)


def test_after_an_expiry_it_lists_again_and_tells_the_difference() -> None:
    bench = Bench(kept_changes=2)
    for name in "abcd":
        bench.inner.create(color(name, "red"))
    bench.start()
    gate = threading.Event()

    def hold(call: Call) -> BaseException | None:
        if call.verb == "next" and call.before:
            gate.wait(60)
            return ExpiredError("too old")
        return None

    bench.store.fail_on = hold
    bench.inner.create(color("e", "red"))  # the watch delivers this one, then meets the fault
    eventually(lambda: ("ADDED", "e") in bench.told())
    told = len(bench.events)
    bench.inner.delete(WIDGET, Key("team", "a"))
    bench.inner.delete(WIDGET, Key("team", "b"))
    bench.inner.create(color("b", "blue"))
    bench.inner.update(changed(bench.inner.get(WIDGET, Key("team", "c")), spec={"color": "blue"}))
    bench.inner.create(color("f", "red"))
    bench.store.fail_on = lambda _call: None
    gate.set()
    bench.settle()

    assert bench.told()[told:] == [
        ("DELETED", "a"),
        ("DELETED", "b"),
        ("MODIFIED", "c"),
        ("ADDED", "b"),
        ("ADDED", "f"),
    ]
    assert bench.view.counts == {"red": 3, "blue": 2}
    bench.informer.stop()


@pytest.mark.parametrize("list_seconds", [0, 10])
def test_a_store_that_calls_every_revision_too_old_is_listed_ever_more_slowly(list_seconds: float) -> None:
    bench = Bench()
    lists = 0

    def expire(call: Call) -> BaseException | None:
        nonlocal lists
        if call.verb == "list" and call.before:
            lists += 1
            bench.clock.advance(list_seconds)
        return ExpiredError("too old") if call.verb == "next" and call.before else None

    bench.store.fail_on = expire
    bench.start()
    seen: list[int] = []
    for delay in (0.01, 0.02, 0.04):
        eventually(lambda: bench.clock.waiting_count)
        seen.append(lists)
        bench.clock.advance(delay)
        eventually(lambda: lists > seen[-1])

    assert seen == [2, 3, 4]
    bench.informer.stop()


def test_an_object_that_was_replaced_by_a_namesake_is_told_as_gone_and_new(bench: Bench) -> None:
    first = bench.inner.create(color("a", "red"))
    bench.start()
    bench.inner.delete(WIDGET, Key("team", "a"))
    second = bench.inner.create(color("a", "red"))
    eventually(lambda: len(bench.events) == 3)

    assert [(event.old, event.new) for event in bench.events] == [(None, first), (first, None), (None, second)]


def test_it_waits_for_a_store_that_is_away_with_growing_patience(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    tries = 0

    def fail_on(call: Call) -> BaseException | None:
        nonlocal tries
        tries += call.verb == "list" and call.before
        return UnavailableError("away") if call.verb == "list" and tries <= 4 else None

    bench.store.fail_on = fail_on
    bench.informer.start()
    for delay in (0.01, 0.02, 0.04, 0.08):
        eventually(lambda: bench.clock.waiting_count == 1)
        number = tries
        bench.clock.advance(delay * 0.9)
        assert tries == number
        assert not bench.informer.has_synced()
        bench.clock.advance(delay * 0.2)
        eventually(lambda: tries > number)  # noqa: B023 - called before the loop continues
    assert bench.informer.wait_for_sync(10)
    bench.informer.stop()

    assert tries == 5

    assert {record.getMessage() for record in caplog.records} == {"Watch interrupted: away"}


def test_a_bug_in_the_store_is_logged_and_outlived(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.start()
    failed = threading.Event()

    def fail_once(call: Call) -> BaseException | None:
        if call.verb == "next" and not call.before and not failed.is_set():
            failed.set()
            return RuntimeError("bug")
        return None

    bench.store.fail_on = fail_once
    bench.inner.create(color("a", "red"))
    pump(bench, lambda: bench.told() == [("ADDED", "a")])

    assert [record.getMessage() for record in caplog.records] == ["Watch failed"]


def test_a_reader_overrun_by_a_storm_of_changes_catches_up() -> None:
    bench = Bench(kept_changes=5, longest_backlog=5)
    bench.start()
    for number in range(200):
        made = bench.inner.create(color(f"w-{number}", "red"))
        bench.inner.update(with_metadata(made, labels={"x": "y"}))
        if number % 2:
            bench.inner.delete(WIDGET, Key("team", f"w-{number}"))
    pump(bench, lambda: list(bench.informer.all()) == list(bench.inner.list(WIDGET).items))

    assert bench.view.counts["red"] == 100
    kept = [name for type_, name in bench.told() if type_ == "ADDED"]
    gone = [name for type_, name in bench.told() if type_ == "DELETED"]
    assert len(kept) - len(gone) == 100
    bench.informer.stop()


# --- life cycle -------------------------------------------------------------------------------------------------------


def test_it_stops_while_it_waits_for_a_change(bench: Bench) -> None:
    bench.start()
    bench.informer.stop()
    bench.informer.stop()
    bench.inner.create(color("late", "red"))

    assert tuple(bench.informer.all()) == ()


def test_it_stops_while_it_waits_for_the_store(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.store.fail_on = lambda _call: UnavailableError("away")
    bench.informer.start()
    eventually(lambda: bench.clock.waiting_count == 1)
    bench.informer.stop()

    assert not bench.informer.wait_for_sync(0)


def test_it_stops_though_it_never_started(bench: Bench) -> None:
    bench.informer.stop()


@pytest.mark.parametrize("what", ["handler", "view"])
def test_nobody_may_join_after_the_start(bench: Bench, what: str, golden: Golden) -> None:
    bench.start()

    with golden.raises(InternalError):
        getattr(bench.informer, f"add_{what}")(ColorCount())


def test_a_store_that_stays_away_is_asked_every_five_seconds() -> None:
    bench = Bench()
    tries = 0

    def fail_on(call: Call) -> BaseException | None:
        nonlocal tries
        tries += call.verb == "list" and call.before
        return UnavailableError("away")

    bench.store.fail_on = fail_on
    bench.informer.start()
    eventually(lambda: tries == 1)
    growing = [0.01 * 2**n for n in range(9)]  # up to 2.56 s
    for number, delay in enumerate([*growing, 5.0, 5.0], start=1):
        eventually(lambda: bench.clock.waiting_count == 1)
        bench.clock.advance(delay * 0.99)
        never(lambda number=number: tries != number, seconds=0.01)  # type: ignore[misc]  # mypy/16227
        bench.clock.advance(delay * 0.02)
        eventually(lambda number=number: tries == number + 1)  # type: ignore[misc]  # as above
    bench.informer.stop()
