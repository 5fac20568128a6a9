"""Bodies in protobuf, written here as clients in Go write them."""

from __future__ import annotations

from typing import Any

import pytest

from katib.kube_api.protobuf import read_protobuf
from katib.kube_api.statuses import StatusError


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
