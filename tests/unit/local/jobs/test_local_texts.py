"""The pure parts under a pod: references, paths, quantities, indexes, environment."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.errors import InvalidError
from katib.model.quantities import parse_quantity
from katib.places.machine.jobs.batch.spec import format_indexes, parse_indexes
from katib.places.machine.pods.environment import ContainerCommand, PodContext, Rewriter, container_command, expand
from katib.places.machine.pods.references import LocalObjects, PodIdentity
from katib.places.machine.pods.requests import Capacity, Lease, Request
from katib.places.machine.pods.tokens import Tokens
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.refusals import refused

CAPACITY = Capacity(Decimal(4), Decimal(8 * 2**30))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(A)", "1", id="known"),
        pytest.param("x$(A)y$(B)", "x1y2", id="in-text"),
        pytest.param("$(C)", "$(C)", id="unknown-stays"),
        pytest.param("$$(A)", "$(A)", id="escaped"),
        pytest.param("$$$(A)", "$1", id="escaped-dollar-then-reference"),
        pytest.param("$$$$(A)", "$$(A)", id="two-escapes"),
        pytest.param("${A} $A", "${A} $A", id="shell-forms-pass"),
        pytest.param("$(A", "$(A", id="open"),
        pytest.param("$", "$", id="lone-dollar"),
        pytest.param("$()", "$()", id="empty"),
        pytest.param("$(date +%s)", "$(date +%s)", id="shell-command-passes"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("/data/x", "/pod/data/x", id="below"),
        pytest.param("/data", "/pod/data", id="itself"),
        pytest.param("--out=/data/x:/data", "--out=/pod/data/x:/pod/data", id="in-an-option"),
        pytest.param("cat '/data'", "cat '/pod/data'", id="quoted"),
        pytest.param("/database", "/database", id="longer-name"),
        pytest.param("/data.old", "/data.old", id="suffix"),
        pytest.param("/my/data/x", "/my/data/x", id="inside-another-path"),
        pytest.param("./data", "./data", id="relative"),
        pytest.param("/data/deep/x", "/pod/deep/x", id="longest-prefix-first"),
    ],
)
def test_mounted_paths_are_replaced_where_they_are_written(text: str, expected: str) -> None:
    assert Rewriter({"/data/": Path("/pod/data"), "/data/deep": Path("/pod/deep")}).rewrite(text) == expected


def test_without_mounts_no_text_changes() -> None:
    assert Rewriter({}).rewrite("/data") == "/data"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("500m", "0.5", id="milli"),
        pytest.param("2", "2", id="plain"),
        pytest.param(2, "2", id="number"),
        pytest.param("1.5Gi", str(int(1.5 * 2**30)), id="binary"),
        pytest.param("1e3", "1000", id="exponent"),
    ],
)
def test_quantities_are_read(text: object, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


def test_each_unit_of_a_quantity_has_its_power() -> None:
    for power, unit in enumerate("kMGTPE", start=1):
        assert parse_quantity(f"1{unit}") == 1000**power
        assert parse_quantity(f"1{unit.upper()}i") == 1024**power
    for power, unit in enumerate("mun", start=1):
        assert parse_quantity(f"1{unit}") == Decimal(1000) ** -power


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "1.2.3"])
def test_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        pytest.param((), "", id="none"),
        pytest.param((1, 3, 4, 5), "1,3-5", id="mixed"),
        pytest.param((0, 1), "0,1", id="two-neighbors"),
        pytest.param((2, 0), "0,2", id="sorted"),
    ],
)
def test_indexes_are_written_as_intervals(indexes: tuple[int, ...], text: str) -> None:
    assert format_indexes(indexes) == text


@given(st.frozensets(st.integers(0, 200)))
def test_indexes_survive_their_text(indexes: frozenset[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


# --- environment ------------------------------------------------------------------------------------------------------


@pytest.fixture(name="store")
def _store() -> MemoryStore:
    store = MemoryStore(())
    meta = {"namespace": "ns"}
    store.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**meta, "name": "cm"}, "data": {"a": "1", "b": "2"}}
    )
    secret = {"password": base64.b64encode(b"pa ss").decode()}
    store.create({"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "name": "sec"}, "data": secret})
    return store


def resolve(
    store: MemoryStore, inherited: Mapping[str, str] | None = None, *, processes: int = 1, **container: Any
) -> ContainerCommand:
    container = {"name": "main", "command": ["x"], **container}
    identity = PodIdentity(
        "p", "ns", "uid-1", "host", labels={"app": "tune"}, annotations={"note": "n"}, service_account="sa"
    )
    context = PodContext(
        identity=identity,
        objects=LocalObjects(store, "ns"),
        capacity=CAPACITY,
        inherited=inherited or {},
        ours={"KATIB_TRIAL_NAME": "t"},
        forced={},
        containers=(container, {"name": "other", "resources": {"limits": {"cpu": "1500m"}}}),
        processes=processes,
    )
    return container_command(container, "spec.template.spec.containers[0]", context, Rewriter({}))


def value(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "value": text}


def source(name: str, **source_: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": source_}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([value("A", "1")], {"A": "1"}, id="value"),
        pytest.param([{"name": "A"}], {"A": ""}, id="empty"),
        pytest.param([value("A", "1"), value("A", "2")], {"A": "2"}, id="last-wins"),
        pytest.param([value("A", "1"), value("B", "$(A)2")], {"B": "12"}, id="sees-what-is-above"),
        pytest.param([value("B", "$(A)"), value("A", "1")], {"B": "$(A)"}, id="not-what-is-below"),
        pytest.param([value("A", "$(HOME)")], {"A": "$(HOME)"}, id="nor-what-is-inherited"),
        pytest.param([value("PYTHONUNBUFFERED", "")], {"PYTHONUNBUFFERED": ""}, id="user-beats-ours"),
        pytest.param([source("A", fieldRef={"fieldPath": "metadata.name"})], {"A": "p"}, id="name"),
        pytest.param([source("A", fieldRef={"fieldPath": "metadata.namespace"})], {"A": "ns"}, id="namespace"),
        pytest.param([source("A", fieldRef={"fieldPath": "metadata.uid"})], {"A": "uid-1"}, id="uid"),
        pytest.param([source("A", fieldRef={"fieldPath": "metadata.labels['app']"})], {"A": "tune"}, id="label"),
        pytest.param([source("A", fieldRef={"fieldPath": "metadata.labels['no']"})], {"A": ""}, id="no-label"),
        pytest.param(
            [source("A", fieldRef={"fieldPath": "metadata.annotations['note']"})], {"A": "n"}, id="annotation"
        ),
        pytest.param([source("A", fieldRef={"fieldPath": "status.podIP"})], {"A": "127.0.0.1"}, id="pod-ip"),
        pytest.param([source("A", fieldRef={"fieldPath": "spec.serviceAccountName"})], {"A": "sa"}, id="account"),
        pytest.param([source("A", configMapKeyRef={"name": "cm", "key": "a"})], {"A": "1"}, id="config-map"),
        pytest.param([source("A", secretKeyRef={"name": "sec", "key": "password"})], {"A": "pa ss"}, id="secret"),
        pytest.param([source("A", resourceFieldRef={"resource": "limits.cpu"})], {"A": "4"}, id="machine-cpu"),
        pytest.param(
            [source("A", resourceFieldRef={"resource": "limits.cpu", "containerName": "other"})],
            {"A": "2"},
            id="cpu-rounded-up",
        ),
        pytest.param(
            [source("A", resourceFieldRef={"resource": "limits.cpu", "containerName": "other", "divisor": "1m"})],
            {"A": "1500"},
            id="divisor",
        ),
    ],
)
def test_environment_entries(store: MemoryStore, entries: list[dict[str, Any]], expected: dict[str, str]) -> None:
    absent = source("ABSENT", configMapKeyRef={"name": "cm", "key": "zz", "optional": True})
    env = resolve(store, {"HOME": "/root"}, env=[*entries, absent]).env

    assert {name: env[name] for name in expected} == expected
    assert "ABSENT" not in env


def test_whole_objects_come_before_single_entries(store: MemoryStore) -> None:
    env_from = [{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "no", "optional": True}}]

    env = resolve(store, envFrom=env_from, env=[value("P_a", "own"), value("C", "$(P_b)")]).env

    assert (env["P_a"], env["P_b"], env["C"]) == ("own", "2", "2")


def test_the_engine_s_environment_is_inherited(store: MemoryStore) -> None:
    env = resolve(store, {"PATH": "/venv/bin"}).env

    assert env == {"PATH": "/venv/bin", "PYTHONUNBUFFERED": "1", "HOSTNAME": "host", "KATIB_TRIAL_NAME": "t"}


THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@pytest.mark.parametrize(
    ("resources", "processes", "env", "expected"),
    [
        pytest.param({"requests": {"cpu": 2}}, 1, {}, "2", id="request"),
        pytest.param({"limits": {"cpu": "3"}}, 1, {}, "3", id="limit"),
        pytest.param({"requests": {"cpu": "1500m"}, "limits": {"cpu": 8}}, 1, {}, "2", id="rounded-up"),
        pytest.param({"requests": {"cpu": "100m"}}, 1, {}, "1", id="at-least-one"),
        pytest.param({"requests": {"cpu": 8}}, 4, {}, "2", id="processes-share-it"),
        pytest.param({"requests": {"cpu": 8}}, 1, {"PET_NPROC_PER_NODE": "3"}, "2", id="processes-of-torchrun"),
        pytest.param({"requests": {"cpu": 2}}, 4, {}, "1", id="more-processes-than-cpus"),
        pytest.param({"requests": {"cpu": 8}}, 1, {"PET_NPROC_PER_NODE": "auto"}, None, id="unknown-processes"),
        pytest.param({"requests": {"memory": "1Gi"}}, 1, {}, None, id="no-request"),
        pytest.param(None, 1, {}, None, id="no-resources"),
    ],
)
def test_libraries_use_as_many_threads_as_cpus_are_requested(
    store: MemoryStore, resources: Any, processes: int, env: dict[str, str], expected: str | None
) -> None:
    found = resolve(store, processes=processes, resources=resources, env=[value(*pair) for pair in env.items()]).env

    assert {found.get(name) for name in THREADS} == {expected}


def test_threads_that_the_user_has_set_stay(store: MemoryStore) -> None:
    resources = {"requests": {"cpu": 4}}

    inherited = resolve(store, {"OMP_NUM_THREADS": "8"}, resources=resources).env
    written = resolve(store, resources=resources, env=[value("MKL_NUM_THREADS", "1")]).env

    assert {name: inherited.get(name) for name in THREADS} == dict.fromkeys(THREADS) | {"OMP_NUM_THREADS": "8"}
    assert (written["OMP_NUM_THREADS"], written["MKL_NUM_THREADS"]) == ("4", "1")


def test_command_and_arguments_are_expanded(store: MemoryStore) -> None:
    command = resolve(store, command=["run", "$(A)"], args=["--x=$(A)", "$(B)"], env=[value("A", "1")])

    assert command.argv == ("run", "1", "--x=1", "$(B)")


def test_everything_missing_is_reported_at_once(store: MemoryStore, golden: Golden) -> None:
    entries = [
        source("A", configMapKeyRef={"name": "no", "key": "a"}),
        source("B", secretKeyRef={"name": "sec", "key": "user"}),
        source("C", fieldRef={"fieldPath": "status.nothing"}),
    ]

    with pytest.raises(InvalidError) as caught:
        resolve(store, env=entries, envFrom=[{"configMapRef": {"name": "gone"}}])

    assert [(e.path.rpartition("containers[0].")[2], e.origin) for e in caught.value.errors] == [
        ("envFrom[0].configMapRef", "source-missing"),
        ("env[0].valueFrom.configMapKeyRef", "source-missing"),
        ("env[1].valueFrom.secretKeyRef", "source-missing"),
        ("env[2].valueFrom.fieldRef.fieldPath", "env-source"),
    ]
    golden(caught.value.errors[2])


def test_a_container_without_command_is_refused(store: MemoryStore) -> None:
    with refused("command-missing"):
        resolve(store, command=[], args=["x"])


# --- tokens -----------------------------------------------------------------------------------------------------------


class TestTokens:
    def ask(self, tokens: Tokens, name: str, **amounts: Any) -> list[Lease]:
        granted: list[Lease] = []
        tokens.ask(name, Request(**amounts), granted.append)
        return granted

    def test_no_request_is_granted_at_once_whatever_is_taken(self) -> None:
        tokens = Tokens(CAPACITY)
        self.ask(tokens, "a", cpu=Decimal(4))
        self.ask(tokens, "b", cpu=Decimal(4))

        assert self.ask(tokens, "c")

    def test_a_large_pod_is_not_overtaken(self) -> None:
        tokens = Tokens(CAPACITY)
        (first,) = self.ask(tokens, "a", cpu=Decimal(3))
        large = self.ask(tokens, "large", cpu=Decimal(4))
        small = self.ask(tokens, "small", cpu=Decimal(1))
        assert (large, small) == ([], [])

        tokens.give_back(first)

        assert large
        assert small == []
        tokens.give_back(large[0])
        assert small

    def test_a_pod_that_withdraws_makes_way(self) -> None:
        tokens = Tokens(CAPACITY)
        self.ask(tokens, "a", cpu=Decimal(3))
        self.ask(tokens, "large", cpu=Decimal(4))
        small = self.ask(tokens, "small", cpu=Decimal(1))

        tokens.withdraw("large")

        assert small

    def test_gpus_are_leased_by_identity(self) -> None:
        tokens = Tokens(Capacity(Decimal(4), Decimal(1), ("0", "1")))
        (first,) = self.ask(tokens, "a", gpus=1)
        (second,) = self.ask(tokens, "b", gpus=1)
        third = self.ask(tokens, "c", gpus=1)
        assert {first.gpus, second.gpus} == {("0",), ("1",)}

        tokens.give_back(first)

        assert third[0].gpus == ("0",)

    def test_a_template_asks_for_its_containers_together_or_its_largest_init_container(self) -> None:
        def part(cpu: str, **fields: Any) -> dict[str, Any]:
            return {"resources": {"requests": {"cpu": cpu}}, **fields}

        spec = {
            "initContainers": [part("3"), part("500m", restartPolicy="Always")],
            "containers": [part("1"), {"resources": {"limits": {"cpu": "1", "memory": "1Ki", "nvidia.com/gpu": 1}}}],
        }

        assert Request.of_template({"spec": spec}) == Request(Decimal(3), Decimal(1024), 1)

    def test_a_part_of_a_card_that_a_placeholder_stood_for_is_refused(self, golden: Golden) -> None:
        container = {"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}

        with golden.raises(ValueError):
            Request.of_template({"spec": {"containers": [container]}})

    def test_what_the_machine_lacks_is_named(self, golden: Golden) -> None:
        golden(Request(cpu=Decimal(8), gpus=1).excess_over(CAPACITY))
