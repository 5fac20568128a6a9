"""Bodies in protobuf, as `kubectl create job` and other clients in Go send objects of built-in kinds. Pure.

Only the fields that such commands send are supported; any other field that is not empty is refused, never dropped. A
client that uses JSON as its content type can send everything. Source of the numbers: `generated.proto` of the groups in
kubernetes/api and kubernetes/apimachinery.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from katib.doors.kube_api.statuses import StatusError, bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_KINDS = frozenset({"ConfigMap", "DeleteOptions", "Event", "Job", "Lease", "Namespace", "Secret"})
_MAGIC = b"k8s\x00"
_GROUP = 3
_DEEPEST = 20

Fields = Mapping[int, tuple[str, str]]

_MESSAGES: Mapping[str, Fields] = {
    message: {int(number): (name, kind) for number, name, kind in map(str.split, fields.split(","))}
    for message, fields in {
        "ObjectMeta": "1 name text, 2 generateName text, 3 namespace text, 5 uid text, 6 resourceVersion text, "
        "7 generation skipped, 8 creationTimestamp skipped, 11 labels {}text, 12 annotations {}text, "
        "13 ownerReferences []OwnerReference, 14 finalizers []text",
        "Namespace": "1 metadata ObjectMeta, 2 spec skipped, 3 status skipped",
        "ConfigMap": "1 metadata ObjectMeta, 2 data {}text, 3 binaryData {}bytes, 4 immutable flag",
        "Secret": "1 metadata ObjectMeta, 2 data {}bytes, 3 type text, 4 stringData {}text, 5 immutable flag",
        "Job": "1 metadata ObjectMeta, 2 spec JobSpec, 3 status skipped",
        "JobSpec": "1 parallelism number, 2 completions number, 3 activeDeadlineSeconds number, "
        "6 template PodTemplateSpec, 7 backoffLimit number, 8 ttlSecondsAfterFinished number, "
        "9 completionMode text, 10 suspend flag",
        "PodTemplateSpec": "1 metadata ObjectMeta, 2 spec PodSpec",
        "PodSpec": "2 containers []Container, 3 restartPolicy text, 4 terminationGracePeriodSeconds number, "
        "5 activeDeadlineSeconds number, 8 serviceAccountName text, 20 initContainers []Container",
        "Container": "1 name text, 2 image text, 3 command []text, 4 args []text, 5 workingDir text, "
        "7 env []EnvVar, 14 imagePullPolicy text",
        "EnvVar": "1 name text, 2 value text",
        "Lease": "1 metadata ObjectMeta, 2 spec LeaseSpec",
        "LeaseSpec": "1 holderIdentity text, 2 leaseDurationSeconds number, 3 acquireTime time, 4 renewTime time, "
        "5 leaseTransitions number, 6 strategy text, 7 preferredHolder text",
        "Event": "1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason text, 4 message text, "
        "5 source EventSource, 6 firstTimestamp time, 7 lastTimestamp time, 8 count number, 9 type text, "
        "10 eventTime time, 11 series EventSeries, 12 action text, 13 related ObjectReference, "
        "14 reportingComponent text, 15 reportingInstance text",
        "EventSeries": "1 count number, 2 lastObservedTime time",
        "EventSource": "1 component text, 2 host text",
        "ObjectReference": "1 kind text, 2 namespace text, 3 name text, 4 uid text, 5 apiVersion text, "
        "6 resourceVersion text, 7 fieldPath text",
        "OwnerReference": "1 kind text, 3 name text, 4 uid text, 5 apiVersion text, 6 controller flag, "
        "7 blockOwnerDeletion flag",
        "DeleteOptions": "1 gracePeriodSeconds number, 2 preconditions Preconditions, 3 orphanDependents flag, "
        "4 propagationPolicy text, 5 dryRun []text",
        "Preconditions": "1 uid text, 2 resourceVersion text",
    }.items()
}
"""JSON name and type of a field by message and number: the prefix `[]` is a list, `{}` a map from texts."""


def read_protobuf(body: bytes) -> dict[str, Any]:
    """Return the object of a body.

    Raises:
        StatusError: It is malformed, or has a field that is only supported in JSON.
    """
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not protobuf of Kubernetes: it does not begin as such")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        header = dict(_fields(envelope[1]))
        kind = header[2].decode()
        if kind not in _KINDS:
            raise StatusError(415, f"a {kind} in protobuf is not understood; send application/json")
        return {"apiVersion": header[1].decode(), "kind": kind, **_message(envelope.get(2, b""), kind, _DEEPEST)}
    except (IndexError, KeyError, ValueError, AttributeError, TypeError, OverflowError, OSError, DecodeError) as error:
        raise bad_request(f"the body is not protobuf of Kubernetes: {error}") from error


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field: a number, or bytes."""
    for field in UnknownFieldSet(Empty.FromString(data)):  # type: ignore[attr-defined]  # the stub does not know it
        if field.wire_type == _GROUP:
            raise ValueError(f"wire type {_GROUP}")
        yield field.field_number, field.data


def _message(data: bytes, name: str, depth: int) -> dict[str, Any]:
    if depth < 0:
        raise ValueError("it is too deep")
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        field, kind = _MESSAGES[name].get(number, ("", ""))
        if not field:
            if value and not _is_empty(value):
                raise StatusError(
                    415, f"field {number} of a {name} in protobuf is not understood; send application/json"
                )
        elif kind.startswith("[]"):
            found.setdefault(field, []).append(_value(value, kind[2:], depth))
        elif kind.startswith("{}"):
            entry = dict(_fields(value))
            found.setdefault(field, {})[entry.get(1, b"").decode()] = _value(entry.get(2, b""), kind[2:], depth)
        elif kind != "skipped" and (value or kind in ("number", "flag")):
            found[field] = _value(value, kind, depth)
    return found


def _is_empty(value: Any) -> bool:
    """Return whether a message has only empty fields, which clients in Go write for unset ones."""
    if not isinstance(value, bytes):
        return not value
    try:
        return all(_is_empty(inner) for _, inner in _fields(value))
    except (ValueError, DecodeError):
        return False


def _value(value: Any, kind: str, depth: int) -> Any:
    if kind == "text":
        return value.decode()
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "number":
        return value - (1 << 64) if value >> 63 else value
    if kind == "flag":
        return bool(value)
    if kind == "time":
        parts = dict(_fields(value))
        seconds = _value(parts.get(1, 0), "number", depth)
        moment = (
            datetime.fromtimestamp(0, UTC)
            + timedelta(seconds=seconds)
            + timedelta(microseconds=parts.get(2, 0) // 1_000)
        )
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return _message(value, kind, depth - 1)
