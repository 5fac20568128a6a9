"""What is served, how bodies in protobuf are read, which objects selectors find, and how streams share a change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from katib.doors.kube_api.list_options import list_options_of
from katib.doors.kube_api.objects import RecentLines, RequestTarget
from katib.doors.kube_api.openapi import Descriptions
from katib.doors.kube_api.protobuf import read_protobuf
from katib.doors.kube_api.representations import WHOLE, Representation
from katib.doors.kube_api.resources import RESOURCES, by_path
from katib.doors.kube_api.selectors import selector_of
from katib.doors.kube_api.statuses import StatusError
from katib.doors.kube_api.watching import _Lines
from katib.engine.controllers.kinds import POD
from katib.places.machine.data import STATUS_KINDS
from katib.places.machine.jobs.kinds import JobKinds


def test_every_kind_of_job_is_served() -> None:
    assert set(JobKinds()) <= {resource.kind for resource in RESOURCES}


def test_a_status_is_written_apart_where_the_store_keeps_it_apart() -> None:
    assert {r.kind for r in RESOURCES if "status" in r.subresources and "update" in r.verbs} == STATUS_KINDS - {POD}


def test_every_resource_has_a_path_of_its_own_and_a_description() -> None:
    schemas = [json.loads(found)["components"]["schemas"] for found in Descriptions({}).documents.values()]
    kinds = [entry for group in schemas for schema in group.values() for entry in schema.get(GVK, ())]

    assert len(by_path(RESOURCES)) == len(RESOURCES)
    assert len(kinds) == len(RESOURCES)


GVK = "x-kubernetes-group-version-kind"


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return bytes((number << 3, content))
    size = len(content)
    length = bytes((size,)) if size < 128 else bytes((size & 127 | 128, size >> 7))
    key = number << 3 | 2
    return (bytes((key,)) if key < 128 else bytes((key & 127 | 128, key >> 7))) + length + content


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    header = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, header) + field(2, raw) + field(3, b"") + field(4, b"")


META = field(1, field(1, b"one") + field(2, b"") + field(7, 0) + field(8, b"\x08\x00"))


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        ("ConfigMap", META + field(2, field(1, b"a") + field(2, b"b")), {"data": {"a": "b"}}),
        (
            "Secret",
            META + field(2, field(1, b"a") + field(2, b"b")) + field(3, b"Opaque"),
            {"data": {"a": "Yg=="}, "type": "Opaque"},
        ),
        ("Namespace", META + field(2, b"") + field(3, b""), {}),
    ],
)
def test_objects_are_read(kind: str, raw: bytes, expected: dict[str, Any]) -> None:
    read = read_protobuf(body("v1", kind, raw))

    assert read == {"apiVersion": "v1", "kind": kind, "metadata": {"name": "one"}, **expected}


def test_a_lease_is_read_with_its_times() -> None:
    spec = field(1, b"me") + field(2, 15) + field(4, field(1, 61) + bytes((2 << 3, 0xE8, 7)))
    read = read_protobuf(body("coordination.k8s.io/v1", "Lease", META + field(2, spec)))

    assert read["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "1970-01-01T00:01:01.000001Z",
    }


def test_a_job_is_read_down_to_its_command() -> None:
    container = (
        field(1, b"main") + field(2, b"busybox") + field(3, b"echo") + field(3, b"hi") + field(8, b"") + field(20, b"")
    )
    pod = field(2, container) + field(3, b"Never") + field(19, b"")
    spec = field(6, field(1, b"") + field(2, pod)) + field(7, 2)
    read = read_protobuf(body("batch/v1", "Job", META + field(2, spec) + field(3, b"")))

    found = read["spec"]["template"]["spec"]
    assert found == {
        "containers": [{"name": "main", "image": "busybox", "command": ["echo", "hi"]}],
        "restartPolicy": "Never",
    }
    assert read["spec"]["backoffLimit"] == 2


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", 400),
        (b"k8s\x00", 400),
        (b"k8s\x00\xff", 400),
        (b"k8s\x00" + b"\xff" * 20, 400),
        (body("v1", "ConfigMap", b"\x0a\x7f"), 400),
        (body("v1", "Pod", META), 415),
        (body("batch/v1", "Job", META + field(2, field(4, field(1, b"x")))), 415),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        read_protobuf(data)

    assert refused.value.code == code


OBJECT = {
    "metadata": {"name": "one", "namespace": "team", "labels": {"app": "demo", "tier": "front", "n": "7"}},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("labels", "fields", "fits"),
    [
        ("", "", True),
        ("app=demo", "", True),
        ("app==demo, tier = front", "", True),
        ("app=demo,app=other", "", False),
        ("app!=demo", "", False),
        ("none!=demo", "", True),
        ("app in (a, demo)", "", True),
        ("app in (demo)", "", True),
        ("app notin (a,b),tier notin (front)", "", False),
        ("none notin (a)", "", True),
        ("app,!none", "", True),
        ("!app", "", False),
        ("n>6,n<8", "", True),
        ("app>6", "", False),
        ("", "metadata.name=one,metadata.namespace!=other", True),
        ("", "metadata.name!=one", False),
        ("", "status.phase=Running", True),
        ("", "spec.nodeName=", True),
    ],
)
def test_selectors_select(labels: str, fields: str, *, fits: bool) -> None:
    assert selector_of("Pod", labels, fields).fits(OBJECT) is fits


@pytest.mark.parametrize(
    ("labels", "fields"),
    [("a b", ""), ("a in b", ""), ("a>x", ""), ("=", ""), ("", "status.other=1"), ("", "metadata.name")],
)
def test_what_is_no_selector_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(StatusError):
        selector_of("Pod", labels, fields)


def test_what_an_index_finds_needs_no_second_look() -> None:
    assert selector_of("Pod", "app=demo,tier in (front)", "").labels == {"app": "demo", "tier": "front"}
    assert selector_of("Pod", "app=demo", "").is_by_index
    assert not selector_of("Pod", "app", "").is_by_index
    assert not selector_of("Pod", "", "metadata.name=one").may_change


TARGET = RequestTarget(RESOURCES[0])


def an_object(name: str) -> dict[str, Any]:
    return {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": name}}


def test_streams_share_the_line_of_a_change() -> None:
    recent: RecentLines = {}
    first, second = _Lines(TARGET, WHOLE, recent), _Lines(TARGET, WHOLE, recent)
    obj = an_object("a")
    line = first.of("ADDED", obj)

    assert second.of("ADDED", obj) is line
    assert json.loads(line) == {"type": "ADDED", "object": obj}
    assert json.loads(first.of("MODIFIED", obj))["type"] == "MODIFIED"
    assert json.loads(first.of("ADDED", dict(an_object("b"))))["object"]["metadata"]["name"] == "b"


def test_another_form_of_the_object_is_none_of_theirs() -> None:
    obj = an_object("a")
    recent: RecentLines = {}
    whole, metadata = _Lines(TARGET, WHOLE, recent), _Lines(TARGET, Representation("PartialObjectMetadata"), recent)

    assert json.loads(metadata.of("ADDED", obj))["object"]["kind"] == "PartialObjectMetadata"
    assert json.loads(whole.of("ADDED", obj))["object"]["kind"] == "Experiment"
    assert json.loads(metadata.of("ADDED", obj))["object"]["kind"] == "PartialObjectMetadata"


def test_few_lines_are_kept_and_no_large_one() -> None:
    recent: RecentLines = {}
    lines = _Lines(TARGET, WHOLE, recent)
    objects = [an_object(f"a-{number}") for number in range(200)]
    for obj in objects:
        lines.of("ADDED", obj)
    newest = set(recent)
    lines.of("ADDED", {**an_object("a"), "spec": {"text": "x" * 100_000}})

    assert newest == {(id(obj), "ADDED") for obj in objects[-64:]}
    assert set(recent) == newest


@pytest.mark.parametrize(
    ("query", "begins"),
    [
        ({}, True),
        ({"resourceVersion": "0"}, True),
        ({"resourceVersion": "7"}, False),
        ({"resourceVersion": "7", "sendInitialEvents": "", "resourceVersionMatch": "NotOlderThan"}, True),
        ({"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}, False),
    ],
)
def test_a_watch_begins_with_the_existing_objects_if_it_asks_for_them(query: dict[str, str], *, begins: bool) -> None:
    assert list_options_of(query, is_watch=True).begins_with_all is begins
