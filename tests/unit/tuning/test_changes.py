"""Following an experiment over a store whose revisions mean nothing to others, and whose connections break."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Self

import pytest

from katib.engine.controllers.kinds import EXPERIMENT, TRIAL
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectList, Watch, WatchEvent
from katib.errors import ExpiredError, ForbiddenError, NotFoundError, UnavailableError
from katib.model.types import Experiment, Trial
from katib.service.tuning.changes import stream_changes
from katib.service.tuning.kind_watches import RECONNECT_SECONDS, KindWatches
from katib.service.tuning.service import BOOKMARK, Change
from tests.support.clock import VirtualClock
from tests.support.controllers import new_store
from tests.support.memory_store import MemoryStore
from tests.support.stores import memory_store
from tests.support.tuning import make_experiment, make_trial
from tests.support.waiting import eventually

DEMO = Key("default", "demo")


class PerKindStore:
    """A store that gives each kind revisions of its own, as an API server may: `e-7`, `t-7`.

    `lose` breaks open watches, and `away` refuses new ones.
    """

    def __init__(self) -> None:
        self.inner: MemoryStore = new_store()
        self.away: Exception | None = None
        self.opened: list[tuple[Kind, str]] = []
        self._open: list[_PerKindWatch] = []

    def list(self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None) -> ObjectList:
        found = self.inner.list(kind, namespace, labels=labels)
        return ObjectList(found.items, _prefix(kind) + found.resource_version)

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        yield self.list(kind, namespace, labels=labels)

    def watch(self, kind: Kind, since: str) -> Watch:
        if self.away is not None:
            raise self.away
        assert since.startswith(_prefix(kind)), f"{since} is no revision of {kind.kind}"
        self.opened.append((kind, since))
        watch = _PerKindWatch(self.inner.watch(kind, since.removeprefix(_prefix(kind))), _prefix(kind))
        self._open.append(watch)
        return watch

    def lose(self, error: Exception) -> None:
        for watch in self._open:
            watch.break_off(error)
        self._open.clear()


class _PerKindWatch:
    def __init__(self, inner: Watch, prefix: str) -> None:
        self._inner = inner
        self._prefix = prefix
        self._error: Exception | None = None

    def next(self, timeout_seconds: float | None = None) -> WatchEvent | None:
        event = self._inner.next(timeout_seconds)
        if event is None:
            if self._error is not None:
                raise self._error
            return None
        metadata = {**event.object["metadata"], "resourceVersion": self._prefix + event.resource_version}
        return WatchEvent(event.type, {**event.object, "metadata": metadata})

    def break_off(self, error: Exception) -> None:
        self._error = error
        self._inner.close()

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _prefix(kind: Kind) -> str:
    return f"{kind.kind[0].lower()}-"


@pytest.fixture
def store() -> PerKindStore:
    made = PerKindStore()
    made.inner.create(without_status(make_experiment("demo")))
    made.inner.create(without_status(make_trial("demo-1")))
    return made


def without_status(obj: Experiment | Trial) -> dict[str, Any]:
    return {key: value for key, value in obj.encode().items() if key != "status"}


def changes(store: PerKindStore, since: str = "", seconds: float = 10) -> Iterator[Change]:
    return stream_changes(store, DEMO, SystemClock(), timeout_seconds=seconds, since=since)  # type: ignore[arg-type]  # it has all that a stream needs


def touch(store: PerKindStore, kind: Kind, name: str, word: str) -> Object:
    """Change the status of an object."""
    stored = store.inner.get(kind, Key("default", name))
    return store.inner.update_status({**stored, "status": {"word": word}})


def words(found: list[Change]) -> list[str]:
    return [
        f"{change.document['metadata']['name']} {change.document.get('status', {}).get('word')}" for change in found
    ]


def test_the_opening_ends_with_a_cursor_that_has_a_revision_of_each_kind(store: PerKindStore) -> None:
    stream = changes(store)
    opening = [next(stream), next(stream)]

    assert [change.document["metadata"]["name"] for change in opening] == ["demo", "demo-1"]
    assert opening[0].cursor == ""
    assert opening[1].cursor == "e-2,t-2"


def test_an_experiment_without_trials_has_a_cursor_too() -> None:
    store = PerKindStore()
    store.inner.create(without_status(make_experiment("demo")))

    assert next(changes(store)).cursor == "e-1,t-1"


def test_revisions_of_one_kind_are_never_used_for_the_other(store: PerKindStore) -> None:
    stream = changes(store)
    seen = [next(stream), next(stream)]
    touch(store, TRIAL, "demo-1", "a")
    seen.append(next(stream))
    touch(store, EXPERIMENT, "demo", "b")
    seen.append(next(stream))
    again = list(changes(store, since=seen[-2].cursor, seconds=0.3))

    assert [change.cursor for change in seen[2:]] == ["e-2,t-3", "e-4,t-3"]
    assert words(again) == ["demo b"]


def test_what_belongs_to_others_is_left_out(store: PerKindStore) -> None:
    stream = changes(store)
    for _ in range(2):
        next(stream)
    store.inner.create(without_status(make_trial("other-1", experiment="other")))
    store.inner.create(without_status(make_experiment("demo", namespace="elsewhere")))
    touch(store, TRIAL, "demo-1", "mine")

    assert words([next(stream)]) == ["demo-1 mine"]


def test_a_lost_connection_is_opened_again_behind_the_last_change(store: PerKindStore) -> None:
    stream = changes(store)
    for _ in range(2):
        next(stream)
    touch(store, TRIAL, "demo-1", "before")
    before = next(stream)
    store.lose(UnavailableError("the connection broke"))
    touch(store, TRIAL, "demo-1", "after")

    assert words([before, next(stream)]) == ["demo-1 before", "demo-1 after"]
    assert (TRIAL, "t-3") in store.opened


def test_a_watch_that_expired_or_is_forbidden_ends_the_stream(store: PerKindStore) -> None:
    for error in (ExpiredError("too old"), ForbiddenError("not for you")):
        store.away = error
        with pytest.raises(type(error)):
            list(changes(store, since="e-1,t-1"))


def test_a_store_that_stays_away_fails_the_stream_in_the_end(store: PerKindStore) -> None:
    clock = HurriedClock()
    store.away = UnavailableError("no answer")
    with (
        KindWatches(store, {TRIAL: "t-1"}, clock) as watches,  # type: ignore[arg-type]  # it has all that a watch needs
        pytest.raises(UnavailableError, match="no answer"),
    ):
        watches.next(10)

    assert clock.waited > RECONNECT_SECONDS


def test_a_lone_change_is_passed_on_at_once_and_those_right_behind_it_together(store: PerKindStore) -> None:
    clock = VirtualClock()
    with KindWatches(store, {TRIAL: "t-2"}, clock) as watches:  # type: ignore[arg-type]  # it has all that a watch needs
        touch(store, TRIAL, "demo-1", "first")
        first = watches.next(10)
        eventually(lambda: clock.waiting_count == 1)
        for change in ("second", "third"):
            touch(store, TRIAL, "demo-1", change)
        before_the_pause_is_over = watches.next(0.0)
        clock.advance(1.0)
        found = [first, watches.next(10), watches.next(10)]

    assert before_the_pause_is_over is None
    assert [event and event.object["status"]["word"] for event in found] == ["first", "second", "third"]


class HurriedClock(SystemClock):
    """Waits in no time."""

    def __init__(self) -> None:
        self.waited = 0.0

    def monotonic(self) -> float:
        return self.waited

    def wait(self, condition: threading.Condition, timeout_seconds: float | None = None) -> None:
        self.waited += timeout_seconds or 0.0


def test_a_missing_experiment_is_told_with_the_first_item() -> None:
    with pytest.raises(NotFoundError, match="demo"):
        next(changes(PerKindStore()))


def test_the_place_moves_on_while_only_others_change(store: PerKindStore) -> None:
    store.inner = memory_store(kept_changes=10)
    store.inner.create(without_status(make_experiment("demo")))
    store.inner.create(without_status(make_trial("other-1", experiment="other")))
    cursor = next(changes(store)).cursor
    for number in range(8):
        touch(store, TRIAL, "other-1", str(number))
    (bookmark,) = changes(store, since=cursor, seconds=0.2)
    for number in range(8):
        touch(store, TRIAL, "other-1", f"again {number}")
    touch(store, EXPERIMENT, "demo", "a")

    assert (bookmark.type, bookmark.object) == (BOOKMARK, None)
    assert words([next(changes(store, since=bookmark.cursor))]) == ["demo a"]
    with pytest.raises(ExpiredError):
        list(changes(store, since=cursor))
