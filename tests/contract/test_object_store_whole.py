"""What a store promises that writes an object and its status at once."""

from __future__ import annotations

import pytest

from katib.errors import AlreadyExistsError, ConflictError
from katib.runtime.objects import Key, ObjectStore, WholeWrites
from tests.support.stores import WIDGET, changed, widget


@pytest.fixture
def whole(store: ObjectStore) -> WholeWrites:
    if not isinstance(store, WholeWrites):
        pytest.skip("this store writes an object and its status one after the other")
    return store


def test_an_object_is_created_with_its_status_by_one_change(store: ObjectStore, whole: WholeWrites) -> None:
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        made = whole.create_whole(changed(widget("a", spec={"size": 1}), status={"ready": True}))
        event = watch.next(5)

        assert event is not None
        assert event.object == made == store.get(WIDGET, Key("team", "a"))
        assert (made["status"], made["metadata"]["generation"]) == ({"ready": True}, 1)
        assert watch.next(0) is None
    with pytest.raises(AlreadyExistsError):
        whole.create_whole(changed(widget("a"), status={}))


def test_fields_and_status_are_changed_by_one_change_or_not_at_all(store: ObjectStore, whole: WholeWrites) -> None:
    made = whole.create_whole(changed(widget("a", spec={"size": 1}), status={"ready": False}))
    label = {"metadata": {"labels": {"x": "1"}}}
    with store.watch(WIDGET, made["metadata"]["resourceVersion"]) as watch:
        after = whole.patch_whole(changed(made, status={"ready": True}), label)

        assert (after["status"], after["metadata"]["labels"]["x"]) == ({"ready": True}, "1")
        assert (after["spec"], after["metadata"]["generation"]) == (made["spec"], 1)
        assert watch.next(5) is not None
        assert whole.patch_whole(after, label) == after  # a write that changes nothing is no write
        with pytest.raises(ConflictError):
            whole.patch_whole(changed(made, status={"ready": False}), {"metadata": {"labels": {"x": "2"}}})
        assert watch.next(0) is None
    assert store.get(WIDGET, Key("team", "a")) == after
