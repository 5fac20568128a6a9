"""The wrapper that other tests rely on for their faults."""

from __future__ import annotations

import pytest

from katib.engine.runtime.objects import Key
from katib.errors import UnavailableError
from tests.support.faulty_store import Call, Crash, FaultyStore, crash_around_write
from tests.support.stores import WIDGET, changed, memory_store, names, widget


@pytest.mark.parametrize(("before", "kept"), [(True, ["a"]), (False, ["a", "b"])], ids=["before", "after"])
def test_a_crash_strikes_before_or_after_the_write_it_is_told(*, before: bool, kept: list[str]) -> None:
    inner = memory_store()
    store = FaultyStore(inner, crash_around_write(2, before=before))
    store.create(widget("a"))
    store.get(WIDGET, Key("team", "a"))

    with pytest.raises(Crash):
        store.create(widget("b"))

    assert names(inner) == kept
    assert store.write_count == 2


def test_every_call_may_fail_and_says_what_it_is() -> None:
    moments: list[Call] = []
    store = FaultyStore(memory_store(), moments.append)
    made = store.create(widget("a"))
    made = store.update(changed(made, spec={"x": 1}))
    store.update_status(changed(made, status={"x": 1}))
    store.get(WIDGET, Key("team", "a"))
    revision = store.list(WIDGET).resource_version
    with store.watch(WIDGET, revision) as watch:
        store.delete(WIDGET, Key("team", "a"))
        watch.next(0)

    verbs = ["create", "update", "update_status", "get", "list", "watch", "delete", "next"]
    assert [call.verb for call in moments if call.before] == verbs
    assert [call.verb for call in moments if not call.before] == verbs
    assert [call.write_number for call in moments if call.before] == [1, 2, 3, 3, 3, 3, 4, 4]


def test_the_fault_may_be_changed_under_way() -> None:
    store = FaultyStore(memory_store(), lambda _call: UnavailableError("away"))
    with pytest.raises(UnavailableError):
        store.list(WIDGET)
    store.fail_on = lambda _call: None

    assert store.list(WIDGET).items == ()
