"""The store of a cluster through outages, lost revisions, crowds and missing rights, against a real API server."""

from __future__ import annotations

import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import EventType, Key, Kind, Object, ObjectList
from katib.errors import (
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KindNotInstalledError,
    NotFoundError,
    UnavailableError,
)
from katib.places.cluster.client import ApiConnection, NamespaceGoneError, RequestInfo, configuration, open_connection
from katib.places.cluster.store import KubernetesStore
from katib.places.cluster.store import store as store_module
from katib.places.cluster.store import watch as watch_module
from katib.places.cluster.store.watch import KubernetesWatch
from tests.support.api_server import ApiServer
from tests.support.server_kinds import clear_test_kinds, install_kind, remove_kind
from tests.support.stores import GADGET, WIDGET, changed, names, owned_by, widget, with_metadata
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

NAMESPACE = "store-test"
CONFIG_MAP = Kind("v1", "ConfigMap")


@pytest.fixture
def connection(api_server: ApiServer) -> Iterator[ApiConnection]:
    api_server.namespace(NAMESPACE)
    clear_test_kinds(api_server)
    with api_server.connect() as connection:
        yield connection
    clear_test_kinds(api_server)


def test_a_pod_speaks_with_its_service_account(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    user = yaml.safe_load(api_server.user("in-a-pod", rules).read_text())
    cluster, token = user["clusters"][0]["cluster"], user["users"][0]["user"]["token"]
    encoded = cluster.get("certificate-authority-data")
    (tmp_path / "ca.crt").write_bytes(
        b64decode(encoded) if encoded else Path(cluster["certificate-authority"]).read_bytes()
    )
    (tmp_path / "namespace").write_text("team\n")
    (tmp_path / "token").write_text("")
    monkeypatch.setattr(configuration, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    address = urlsplit(cluster["server"])
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(address.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    with pytest.raises(UnavailableError, match="token is empty; fix them where they come from"):
        open_connection()
    (tmp_path / "token").write_text(f"{token}\n")

    with open_connection() as connection:
        assert connection.namespace == "team"
        assert connection.request("GET", "/api/v1/configmaps")["kind"] == "ConfigMapList"
        with pytest.raises(ForbiddenError, match="in-a-pod"):
            connection.request("GET", "/api/v1/secrets")


@pytest.fixture
def store(connection: ApiConnection) -> KubernetesStore:
    return KubernetesStore(connection)


def thing(name: str = "a", **fields: Any) -> dict[str, Any]:
    return widget(name, NAMESPACE, **fields)


@contextmanager
def informer_over(
    store: KubernetesStore, told: list[InformerEvent[Object]] | None = None
) -> Iterator[Informer[Object]]:
    informer: Informer[Object] = Informer(store, WIDGET, lambda obj: obj)
    if told is not None:
        informer.add_handler(told.append)
    informer.start()
    try:
        assert informer.wait_for_sync(30)
        yield informer
    finally:
        informer.stop()


def shows(informer: Informer[Object], store: KubernetesStore) -> Callable[[], bool]:
    """Return a check that the informer's cache and a fresh list are equal."""

    def check() -> bool:
        mine = sorted(informer.all(), key=Key.of)
        return mine == sorted(store.list(WIDGET).items, key=Key.of)

    return check


# --- informers --------------------------------------------------------------------------------------------------------


def test_list_then_watch_misses_and_repeats_nothing_while_others_write(store: KubernetesStore) -> None:
    def write(number: int) -> None:
        for index in range(40):
            store.create(thing(f"w-{number}-{index}"))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    listed = store.list(WIDGET)
    with store.watch(WIDGET, listed.resource_version) as watch:
        seen = [obj["metadata"]["name"] for obj in listed.items]
        while len(seen) < 160 and (event := watch.next(10)) is not None:
            seen.append(event.object["metadata"]["name"])
        for writer in writers:
            writer.join()
        assert watch.next(0.2) is None

    assert sorted(seen) == sorted(names(store))
    assert len(seen) == 160


@pytest.mark.parametrize("compacts", [True, False], ids=["forgotten", "still known"])
def test_a_list_that_changes_between_two_pages_is_whole_and_of_one_moment(
    store: KubernetesStore, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, *, compacts: bool
) -> None:
    """Newer servers know the moment of the first page although etcd forgot it: they serve pages from a snapshot."""
    monkeypatch.setattr(store_module, "PAGE_SIZE", 3)
    all_of_them = [f"w-{index}" for index in range(7)]
    for name in all_of_them:
        store.create(thing(name))
    changed: list[str] = []

    def change(name: str) -> None:
        changed.append(name)
        with api_server.connect() as other:
            KubernetesStore(other).delete(WIDGET, Key(NAMESPACE, name))
        if compacts:
            api_server.compact()

    pages = store.pages(WIDGET)
    found = [obj["metadata"]["name"] for obj in next(pages).items]
    change("w-0")
    refusal = ""
    try:
        found += [obj["metadata"]["name"] for page in pages for obj in page.items]
    except ExpiredError as error:
        refusal = str(error)
    assert (compacts and "list again" in refusal) or found == all_of_them

    store.connection.observe(lambda info, _status: change("w-1") if info.verb == "list" and len(changed) == 1 else None)
    assert names(store) in ([all_of_them[1:], all_of_them[2:]] if compacts else [all_of_them[1:]])


@pytest.mark.parametrize("compacts", [True, False], ids=["forgotten", "still known"])
def test_an_informer_whose_list_changes_between_two_pages_shows_what_is_there(
    store: KubernetesStore, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, *, compacts: bool
) -> None:
    monkeypatch.setattr(store_module, "PAGE_SIZE", 3)
    for index in range(7):
        store.create(thing(f"w-{index}"))
    told: list[InformerEvent[Object]] = []
    lists: list[int] = []

    def change(info: RequestInfo, _status: int) -> None:
        lists.append(1) if info.verb == "list" else None
        if info.verb == "list" and len(lists) in (1, 3):  # after the first page of the first two tries
            with api_server.connect() as other:
                KubernetesStore(other).delete(WIDGET, Key(NAMESPACE, f"w-{len(lists)}"))
            if compacts:
                api_server.compact()

    store.connection.observe(change)
    with informer_over(store, told) as informer:
        eventually(shows(informer, store))

    added = [event.key.name for event in told if event.type is EventType.ADDED]
    deleted = [event.key.name for event in told if event.type is EventType.DELETED]
    assert sorted(added) == sorted({"w-0", "w-2", "w-4", "w-5", "w-6", *deleted})
    assert set(deleted) <= {"w-1", "w-3"}


def test_metadata_of_what_lacks_a_label_is_listed_without_anything_else(
    connection: ApiConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "METADATA_PAGE_SIZE", 2)
    store = KubernetesStore(connection, selector="!color")
    owner = store.create(thing("owner", kind=GADGET, labels={"color": "red"}))
    store.create(thing("red", labels={"color": "red"}, spec={"x": 1}))
    for name in "abc":
        store.create(thing(name, spec={"x": "x" * 100}, ownerReferences=owned_by(owner)))

    found = [obj for page in store.metadata_pages(WIDGET) for obj in page.items]

    assert [Key.of(obj).name for obj in found] == ["a", "b", "c"]
    assert [sorted(obj) for obj in found] == [["apiVersion", "kind", "metadata"]] * 3
    assert [obj["metadata"]["ownerReferences"] for obj in found] == [owned_by(owner)] * 3


class GatedStore(KubernetesStore):
    """Lets nobody watch while its gate is closed, and counts lists."""

    def __init__(self, connection: ApiConnection) -> None:
        super().__init__(connection)
        self.gate = threading.Event()
        self.gate.set()
        self.lists = 0

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        self.lists += 1
        return super().pages(kind, namespace, labels=labels)

    def watch(self, kind: Kind, since: str) -> KubernetesWatch:
        self.gate.wait(60)
        return super().watch(kind, since)


def test_an_informer_lists_again_when_its_revision_has_expired(
    connection: ApiConnection, store: KubernetesStore, api_server: ApiServer
) -> None:
    told: list[InformerEvent[Object]] = []
    gated = GatedStore(connection)
    kept = store.create(thing("kept"))
    store.create(thing("gone"))
    with informer_over(gated, told) as informer:
        eventually(lambda: informer._watch)
        gated.gate.clear()
        assert informer._watch is not None
        informer._watch.close()
        store.delete(WIDGET, Key(NAMESPACE, "gone"))
        store.update(changed(kept, spec={"x": 1}))
        store.create(thing("new"))
        api_server.expire()
        assert gated.lists == 1
        gated.gate.set()
        eventually(shows(informer, store))

    last = {event.key.name: event.type for event in told}
    assert last == {"kept": EventType.MODIFIED, "gone": EventType.DELETED, "new": EventType.ADDED}
    assert gated.lists == 2


@pytest.mark.slow
def test_an_informer_outlives_an_api_server_that_is_away_for_half_a_minute(
    store: KubernetesStore, api_server: ApiServer
) -> None:
    store.create(thing("before"))
    with informer_over(store) as informer:
        api_server.stop()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with pytest.raises(UnavailableError, match="no answer from https://"):
                store.create(thing("lost"))
        assert [obj["metadata"]["name"] for obj in informer.all()] == ["before"]
        api_server.start()
        store.create(thing("after"))
        eventually(shows(informer, store))

        assert sorted(names(store)) == ["after", "before"]


def test_a_storm_of_conflicts_loses_no_write_and_is_seen_to_its_end(store: KubernetesStore) -> None:
    store.create(thing("counter", spec={"n": 0}))
    key = Key(NAMESPACE, "counter")

    def write(change: Callable[[Object], Object], method: Callable[[Object], Object]) -> None:
        done = 0
        while done < 25:
            try:
                method(change(store.get(WIDGET, key)))
                done += 1
            except ConflictError:
                continue

    def count(obj: Object) -> Object:
        return changed(obj, spec={"n": obj["spec"]["n"] + 1})

    def count_status(obj: Object) -> Object:
        return changed(obj, status={"n": obj.get("status", {}).get("n", 0) + 1})

    def label(obj: Object) -> Object:
        number = int(obj["metadata"].get("labels", {}).get("n", "0"))
        return with_metadata(obj, labels={"n": str(number + 1)})

    with informer_over(store) as informer:
        jobs = [(count, store.update), (count_status, store.update_status), (label, store.update)] * 2
        threads = [threading.Thread(target=write, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        last = store.get(WIDGET, key)
        eventually(lambda: informer.get(key) == last)

    assert (last["spec"], last["status"], last["metadata"]["labels"]) == ({"n": 50}, {"n": 50}, {"n": "50"})


# --- watches ----------------------------------------------------------------------------------------------------------


def test_a_watch_outlives_the_answers_it_is_made_of(store: KubernetesStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "LIFE_SECONDS", (1, 1))
    opened: list[RequestInfo] = []
    store.connection.observe(lambda info, _status: opened.append(info) if info.verb == "watch" else None)
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        for index in range(3):
            store.create(thing(f"w-{index}"))
            eventually(lambda index=index: len(opened) > index + 1)  # type: ignore[misc] # bound at once

        seen = [watch.next(5) for _ in range(3)]
        assert watch.next(0.2) is None

    assert [event and event.object["metadata"]["name"] for event in seen] == ["w-0", "w-1", "w-2"]


def test_a_watch_whose_connection_breaks_goes_on_where_it_was(store: KubernetesStore) -> None:
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        store.create(thing("a"))
        first = watch.next(5)
        watch._stream.close()  # as a network does
        store.create(thing("b"))
        second = watch.next(5)

    assert first is not None
    assert first.object["metadata"]["name"] == "a"
    assert second is not None
    assert second.object["metadata"]["name"] == "b"


def test_a_watch_of_a_server_that_went_away_says_so(store: KubernetesStore, api_server: ApiServer) -> None:
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        api_server.stop()
        try:
            with pytest.raises(UnavailableError, match="no answer"):
                watch.next(20)
        finally:
            api_server.start()


def test_closing_wakes_the_reader_and_ends_the_thread_at_once(store: KubernetesStore) -> None:
    watch = store.watch(WIDGET, store.list(WIDGET).resource_version)
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.append(watch.next()))
    reader.start()
    watch.close()
    reader.join()
    watch._thread.join(60)

    assert answers == [None]
    assert not watch._thread.is_alive()


def test_a_slow_reader_gets_every_change(store: KubernetesStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "LONGEST_QUEUE", 5)
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        for index in range(30):
            store.create(thing(f"w-{index:02}"))
        seen = [event.object["metadata"]["name"] for _ in range(30) if (event := watch.next(5)) is not None]

    assert seen == [f"w-{index:02}" for index in range(30)]


def test_a_slow_reader_of_large_objects_holds_few_of_them(
    store: KubernetesStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "LARGEST_QUEUE_BYTES", 50_000)
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        for index in range(20):
            store.create(thing(f"w-{index:02}", spec={"text": "x" * 20_000}))
        eventually(lambda: len(watch._queue) == 3)
        seen = [event.object["metadata"]["name"] for _ in range(20) if (event := watch.next(5)) is not None]

    assert seen == [f"w-{index:02}" for index in range(20)]


def test_a_selector_narrows_lists_and_watches_of_its_kind_only(connection: ApiConnection) -> None:
    store = KubernetesStore(connection, selectors={WIDGET: "color in (red,blue)"})
    since = store.list(WIDGET).resource_version
    store.create(thing("plain"))
    store.create(thing("red", labels={"color": "red", "size": "1"}))
    store.create(thing("plain", kind=GADGET))

    with store.watch(WIDGET, since) as watch:
        event = watch.next(5)

    assert event is not None
    assert event.object["metadata"]["name"] == "red"
    assert names(store) == ["red"]
    assert names(store, labels={"size": "1"}) == ["red"]
    assert names(store, labels={"size": "2"}) == []
    assert names(store, GADGET) == ["plain"]


def test_a_selector_of_all_other_kinds_narrows_those_only(connection: ApiConnection) -> None:
    store = KubernetesStore(connection, selectors={WIDGET: ""}, selector="color")
    store.create(thing("plain"))
    store.create(thing("plain", kind=GADGET))
    store.create(thing("red", kind=GADGET, labels={"color": "red"}))

    assert names(store) == ["plain"]
    assert names(store, GADGET) == ["red"]


def test_a_store_of_one_namespace_sees_no_other(connection: ApiConnection, api_server: ApiServer) -> None:
    api_server.namespace("store-test-other")
    everywhere, here = KubernetesStore(connection), KubernetesStore(connection, namespace=NAMESPACE)
    since = here.list(WIDGET).resource_version
    everywhere.create(widget("there", "store-test-other"))
    everywhere.create(thing("here"))

    with here.watch(WIDGET, since) as watch:
        event = watch.next(5)

    assert event is not None
    assert event.object["metadata"]["name"] == "here"
    assert names(here) == ["here"]
    assert sorted(names(everywhere)) == ["here", "there"]


# --- kinds, rights, refusals ------------------------------------------------------------------------------------------


def test_a_kind_that_is_installed_later_is_found_without_a_restart(
    store: KubernetesStore, api_server: ApiServer
) -> None:
    late = Kind("late.store-test.example.org/v1", "Latecomer")
    with pytest.raises(KindNotInstalledError, match=r"late\.store-test\.example\.org/v1 Latecomer: .* install it"):
        store.list(late)
    install_kind(api_server, *late)
    try:
        eventually(lambda: is_served(store, late))
        store.create(thing("a", kind=late))
        assert names(store, late) == ["a"]
    finally:
        remove_kind(api_server, *late)
    with pytest.raises(KindNotInstalledError):
        store.list(late)
    with pytest.raises(KindNotInstalledError):
        store.create(thing("b", kind=late))


def is_served(store: KubernetesStore, kind: Kind) -> bool:
    try:
        store.list(kind)
    except KindNotInstalledError:
        return False
    return True


def test_a_missing_right_is_named_as_a_rule(api_server: ApiServer, connection: ApiConnection) -> None:
    rules = [{"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["get", "list", "create"]}]
    kubeconfig = api_server.user("store-test-limited", rules)
    try:
        with api_server.connect(kubeconfig) as limited:
            store = KubernetesStore(limited)
            made = store.create(thing("a"))
            rule = r'\{apiGroups: \["example\.org"\], resources: \["widgets/status"\], verbs: \["update"\]\}'
            with pytest.raises(ForbiddenError, match=rf"store-test-limited may not .*{rule} in namespace store-test"):
                store.update_status(changed(made, status={"x": 1}))
            with pytest.raises(ForbiddenError, match=r'verbs: \["watch"\]\} for the whole cluster'):
                store.watch(WIDGET, made["metadata"]["resourceVersion"])
            with pytest.raises(ForbiddenError, match=r'apiGroups: \[""\], resources: \["configmaps"\]'):
                store.get(CONFIG_MAP, Key(NAMESPACE, "a"))
    finally:
        api_server.forget_user("store-test-limited")


def test_every_mistake_in_an_object_is_told_with_its_field(store: KubernetesStore) -> None:
    with pytest.raises(InvalidError) as caught:
        store.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": NAMESPACE}})

    paths = [error.path for error in caught.value.errors]
    assert paths == ["spec.template.spec.containers", "spec.template.spec.restartPolicy"]
    assert all("\n" not in str(error) for error in caught.value.errors)


def test_a_namespace_that_is_not_there_is_told_as_such(store: KubernetesStore) -> None:
    with pytest.raises(NamespaceGoneError, match="namespace store-test-nowhere: not found; create it"):
        store.create(widget("a", "store-test-nowhere"))


def test_what_a_foreground_deletion_owns_goes_first(connection: ApiConnection) -> None:
    store = KubernetesStore(connection, foreground=lambda kind: kind == WIDGET)
    reference = {**owned_by(store.create(thing("top")))[0], "blockOwnerDeletion": True}
    held = store.create(thing("held", kind=GADGET, ownerReferences=[reference], finalizers=["store-test/hold"]))

    store.delete(WIDGET, Key(NAMESPACE, "top"))
    eventually(lambda: "deletionTimestamp" in store.get(GADGET, Key.of(held))["metadata"])
    assert names(store) == ["top"]
    store.update(with_metadata(store.get(GADGET, Key.of(held)), finalizers=[]))
    eventually(lambda: names(store) == [])


# --- lost answers -----------------------------------------------------------------------------------------------------


@contextmanager
def answers_lost(connection: ApiConnection, count: int) -> Iterator[None]:
    """Have the next writes take effect, and their answers get lost on the way back."""
    session: Any = connection._session
    send, left = session.send, count

    def lossy(method: str, *arguments: Any, **options: Any) -> Any:
        nonlocal left
        answer = send(method, *arguments, **options)
        if method != "GET" and left > 0:
            left -= 1
            raise ConnectionResetError("the answer got lost")
        return answer

    session.send = lossy
    try:
        yield
    finally:
        session.send = send


def test_a_creation_whose_answer_was_lost_is_found_again(connection: ApiConnection) -> None:
    store = KubernetesStore(connection)
    with answers_lost(connection, 2):
        made = store.create(thing("a", spec={"x": [1]}, labels={"l": "1"}))
        named = store.create(thing("", generateName="run-"))

    assert made == store.get(WIDGET, Key(NAMESPACE, "a"))
    assert sorted(names(store)) == ["a", named["metadata"]["name"]]


def test_a_deletion_whose_answer_was_lost_is_a_success(connection: ApiConnection) -> None:
    store = KubernetesStore(connection)
    store.create(thing("a"))
    with answers_lost(connection, 1):
        store.delete(WIDGET, Key(NAMESPACE, "a"))

    with pytest.raises(NotFoundError):
        store.delete(WIDGET, Key(NAMESPACE, "a"))


def test_an_update_whose_answer_was_lost_is_a_conflict(connection: ApiConnection) -> None:
    store = KubernetesStore(connection)
    made = store.create(thing("a"))
    with answers_lost(connection, 1), pytest.raises(ConflictError, match="read it again"):
        store.update(changed(made, spec={"x": 1}))

    assert store.get(WIDGET, Key(NAMESPACE, "a"))["spec"] == {"x": 1}
