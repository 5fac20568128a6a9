"""Each object store against a model that is small enough to be believed: dictionaries and the rules in plain words."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import EventType, Key, Kind, Object, ObjectStore
from katib.engine.stores.sql import SqlStore
from katib.errors import AlreadyExistsError, ConflictError, NotFoundError
from tests.support.stores import CONFIG_MAP, GADGET, STATUS_KINDS, WIDGET, drain, memory_store, widget

KINDS = st.sampled_from([WIDGET, GADGET, CONFIG_MAP])
KEYS = st.builds(Key, st.sampled_from(["", "one", "two"]), st.sampled_from(["a", "b", "c"]))
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["", "1", "2"]))
FINALIZERS = st.lists(st.sampled_from(["f", "g"]), unique=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
Ref = tuple[Kind, Key]


@dataclass
class Modeled:
    """What the model knows of one object."""

    uid: str
    labels: dict[str, str]
    finalizers: list[str]
    owners: list[str]
    spec: Any
    status: Any = None
    deleting: bool = False


@dataclass
class Model:
    objects: dict[Ref, Modeled] = field(default_factory=dict)

    def uids(self) -> set[str]:
        return {obj.uid for obj in self.objects.values()}

    def delete(self, ref: Ref) -> None:
        if self.objects[ref].finalizers:
            self.objects[ref].deleting = True
            return
        gone = self.objects.pop(ref).uid
        for other, obj in list(self.objects.items()):
            if gone in obj.owners and other in self.objects and not self.uids().intersection(obj.owners):
                self.delete(other)


class StoreMachine(RuleBasedStateMachine):
    """Runs the same calls on a store and on the model, and compares answers, contents and watched changes."""

    readings: Bundle[Object] = Bundle("readings")

    def make_store(self, stack: ExitStack) -> ObjectStore:
        raise NotImplementedError

    @initialize()
    def set_up(self) -> None:
        self.stack = ExitStack()
        self.store = self.make_store(self.stack)
        self.model = Model()
        self.revision = 0
        self.watches = {
            kind: self.stack.enter_context(self.store.watch(kind, "0")) for kind in (WIDGET, GADGET, CONFIG_MAP)
        }
        self.replayed: dict[Ref, Object] = {}

    def teardown(self) -> None:
        self.stack.close()

    @rule(target=readings, kind=KINDS, key=KEYS, labels=LABELS, finalizers=FINALIZERS, spec=JSON, data=st.data())
    def create(
        self, kind: Kind, key: Key, labels: dict[str, str], finalizers: list[str], spec: Any, data: st.DataObject
    ) -> Object:
        owners = data.draw(st.lists(st.sampled_from(sorted(self.model.uids()) or ["nobody"]), max_size=2, unique=True))
        references = [{"apiVersion": "v1", "kind": "Any", "name": "any", "uid": uid} for uid in owners]
        given = widget(
            key.name,
            key.namespace,
            kind=kind,
            labels=labels,
            finalizers=finalizers,
            ownerReferences=references,
            spec=spec,
        )
        if (kind, key) in self.model.objects:
            with pytest.raises(AlreadyExistsError):
                self.store.create(given)
            return self.store.get(kind, key)
        made = self.store.create(given)
        self.model.objects[kind, key] = Modeled(made["metadata"]["uid"], labels, finalizers, owners, spec)
        if owners == ["nobody"]:
            self.model.delete((kind, key))
        return made

    @rule(target=readings, kind=KINDS, key=KEYS)
    def read(self, kind: Kind, key: Key) -> Object:
        if (kind, key) in self.model.objects:
            return self.store.get(kind, key)
        with pytest.raises(NotFoundError):
            self.store.get(kind, key)
        return widget("never", resourceVersion="1", uid="never")

    @rule(target=readings, reading=consumes(readings), labels=LABELS, spec=JSON, data=st.data())
    def update(self, reading: Object, labels: dict[str, str], spec: Any, data: st.DataObject) -> Object:
        had = reading["metadata"].get("finalizers", [])
        finalizers = data.draw(st.lists(st.sampled_from(had), unique=True) if had else st.just([]))
        metadata = {**reading["metadata"], "labels": labels, "finalizers": finalizers}
        given = {**reading, "metadata": metadata, "spec": spec, "status": "ignored"}
        if Kind.of(reading) == CONFIG_MAP:
            given.pop("status")
        ref, obj = self.expect(reading)
        if obj is None or self.is_stale(reading):
            with pytest.raises(NotFoundError if obj is None else ConflictError):
                self.store.update(given)
            return reading
        after = self.store.update(given)
        obj.labels, obj.finalizers, obj.spec = labels, finalizers, spec
        if obj.deleting and not finalizers:
            self.model.delete(ref)
        return after

    @rule(target=readings, reading=consumes(readings), labels=LABELS, patch=st.dictionaries(st.text(max_size=3), JSON))
    def patch(self, reading: Object, labels: dict[str, str], patch: dict[str, Any]) -> Object:
        """What a patch names changes; the labels that it does not name stay, and so does the rest of the spec."""
        changes = {"metadata": {"labels": {name: value or None for name, value in labels.items()}}, "spec": patch}
        _, obj = self.expect(reading)
        if obj is None or self.is_stale(reading):
            with pytest.raises(NotFoundError if obj is None else ConflictError):
                self.store.patch(reading, changes)
            return reading
        after = self.store.patch({**reading, "spec": "ignored"}, changes)
        obj.labels = {name: value for name, value in {**obj.labels, **labels}.items() if value or name not in labels}
        obj.spec = merged(obj.spec, patch)
        if obj.deleting and not obj.finalizers:
            self.model.delete((Kind.of(reading), Key.of(reading)))
        return after

    @rule(target=readings, reading=consumes(readings), status=JSON)
    def update_status(self, reading: Object, status: Any) -> Object:
        if Kind.of(reading) not in STATUS_KINDS:
            return reading
        given = {**reading, "spec": "ignored", "status": status}
        _, obj = self.expect(reading)
        if obj is None or self.is_stale(reading):
            with pytest.raises(NotFoundError if obj is None else ConflictError):
                self.store.update_status(given)
            return reading
        obj.status = {"is": status}
        return self.store.update_status({**given, "status": obj.status})

    @rule(kind=KINDS, key=KEYS)
    def delete(self, kind: Kind, key: Key) -> None:
        if (kind, key) not in self.model.objects:
            with pytest.raises(NotFoundError):
                self.store.delete(kind, key)
            return
        self.store.delete(kind, key)
        self.model.delete((kind, key))

    @rule(kind=KINDS, labels=LABELS, namespace=st.sampled_from([None, "", "one"]))
    def find(self, kind: Kind, labels: dict[str, str], namespace: str | None) -> None:
        found = {Key.of(obj) for obj in self.store.list(kind, namespace, labels=labels).items}

        expected = {
            key
            for (of_kind, key), obj in self.model.objects.items()
            if of_kind == kind and namespace in {None, key.namespace} and labels.items() <= obj.labels.items()
        }
        assert found == expected

    @rule(kind=KINDS, data=st.data())
    def find_owned(self, kind: Kind, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.model.uids()) or ["nobody"]))
        found = {Key.of(obj) for obj in self.store.list(kind, owner_uid=uid).items}

        assert found == {
            key for (of_kind, key), obj in self.model.objects.items() if of_kind == kind and uid in obj.owners
        }

    @invariant()
    def contents_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        kept = {(kind, Key.of(obj)): obj for kind in self.watches for obj in self.store.list(kind).items}

        assert {ref: simplified(obj) for ref, obj in kept.items()} == self.model.objects

    @invariant()
    def watched_changes_rebuild_the_contents(self) -> None:
        if not hasattr(self, "store"):
            return
        events = sorted(
            (event for watch in self.watches.values() for event in drain(watch)),
            key=lambda event: int(event.resource_version),
        )
        for event in events:
            ref = Kind.of(event.object), Key.of(event.object)
            assert int(event.resource_version) > self.revision
            assert (event.type is EventType.ADDED) == (ref not in self.replayed)
            self.revision = int(event.resource_version)
            if event.type is EventType.DELETED:
                del self.replayed[ref]
            else:
                self.replayed[ref] = event.object
        assert self.replayed == {
            (kind, Key.of(obj)): obj for kind in self.watches for obj in self.store.list(kind).items
        }
        assert self.store.list(WIDGET).resource_version == str(self.revision)

    def expect(self, reading: Object) -> tuple[Ref, Modeled | None]:
        """Return the model's object that a reading is of, or None when that one is gone."""
        ref = Kind.of(reading), Key.of(reading)
        obj = self.model.objects.get(ref)
        return ref, obj if obj and obj.uid == reading["metadata"]["uid"] else None

    def is_stale(self, reading: Object) -> bool:
        current = self.store.get(Kind.of(reading), Key.of(reading))
        return bool(current["metadata"]["resourceVersion"] != reading["metadata"]["resourceVersion"])


def merged(value: Any, patch: Any) -> Any:
    """Return what RFC 7386 says, in the words of its own pseudocode."""
    if not isinstance(patch, dict):
        return patch
    target = dict(value) if isinstance(value, dict) else {}
    for name in patch:
        if patch[name] is None:
            target.pop(name, None)
        else:
            target[name] = merged(target.get(name), patch[name])
    return target


def simplified(obj: Object) -> Modeled:
    metadata = obj["metadata"]
    return Modeled(
        metadata["uid"],
        metadata["labels"],
        metadata["finalizers"],
        [reference["uid"] for reference in metadata["ownerReferences"]],
        obj["spec"],
        obj.get("status"),
        "deletionTimestamp" in metadata,
    )


class MemoryMachine(StoreMachine):
    def make_store(self, stack: ExitStack) -> ObjectStore:
        return memory_store()


class SqlMachine(StoreMachine):
    def make_store(self, stack: ExitStack) -> ObjectStore:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        return SqlStore(stack.enter_context(open_database(Path(directory) / "objects.db")), STATUS_KINDS)


@pytest.mark.parametrize(
    ("machine", "examples"), [pytest.param(MemoryMachine, 80, id="memory"), pytest.param(SqlMachine, 30, id="sql")]
)
def test_a_store_behaves_as_the_model(machine: type[StoreMachine], examples: int) -> None:
    quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=quiet),
    )
