"""Reviews as they are read, and answers with their patches."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.errors import FieldError, InvalidError, UnavailableError
from katib.places.cluster.admission.reviews import (
    ALLOWED,
    AdmissionResponse,
    AdmissionReview,
    decode_review,
    diff,
    encode_answer,
    refused,
)

REQUEST = {
    "uid": "u-1",
    "operation": "UPDATE",
    "namespace": "team",
    "name": "demo",
    "object": {"spec": {"a": 1}},
    "oldObject": {"spec": {"a": 0}},
    "userInfo": {"username": "jane"},
    "kind": {"group": "kubeflow.org", "version": "v1beta1", "kind": "Experiment"},
    "resource": {"group": "kubeflow.org", "version": "v1beta1", "resource": "experiments"},
    "subResource": "status",
    "dryRun": True,
}


def body(version: str = "v1", **request: Any) -> bytes:
    return json.dumps(
        {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview", "request": {**REQUEST, **request}}
    ).encode()


def response(review: AdmissionReview, verdict: AdmissionResponse) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_answer(review, verdict))["response"]
    return found


def test_a_review_is_read_whole() -> None:
    assert decode_review(body()) == AdmissionReview(
        uid="u-1",
        operation="UPDATE",
        namespace="team",
        name="demo",
        object={"spec": {"a": 1}},
        old_object={"spec": {"a": 0}},
        user="jane",
        dry_run=True,
        resource="experiments",
        subresource="status",
        kind="Experiment",
        group="kubeflow.org",
    )


def test_what_the_api_server_leaves_null_is_empty() -> None:
    review = decode_review(body(oldObject=None, object=None, subResource=None, dryRun=None, name=None))

    assert (review.old_object, review.object, review.subresource, review.dry_run, review.name) == (
        {},
        {},
        "",
        False,
        "",
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"apiVersion": "admission.k8s.io/v1"}',
        b'{"apiVersion": "admission.k8s.io/v1", "request": {}}',
        b'{"apiVersion": "v1", "request": {"uid": "u"}}',
    ],
)
def test_what_is_no_review_is_refused_in_one_line(text: bytes) -> None:
    with pytest.raises(InvalidError) as failure:
        decode_review(text)

    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_answer_has_the_version_and_the_uid_of_the_question(version: str) -> None:
    answer = json.loads(encode_answer(decode_review(body(version)), ALLOWED))

    assert answer == {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True},
    }


def test_a_patched_object_travels_as_the_difference() -> None:
    found = response(decode_review(body()), AdmissionResponse(allowed=True, patched={"spec": {"a": 1, "b": 2}}))

    assert found["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(found["patch"])) == [{"op": "add", "path": "/spec/b", "value": 2}]


def test_an_object_patched_to_what_it_is_needs_no_patch() -> None:
    assert "patch" not in response(decode_review(body()), AdmissionResponse(allowed=True, patched={"spec": {"a": 1}}))


def test_a_refusal_carries_all_errors_and_the_code_of_their_class() -> None:
    errors = [FieldError("a", "it is 1", "make it 2", "x"), FieldError("b", "it is 3", "make it 4", "y")]

    assert response(decode_review(body()), refused(InvalidError(errors)))["status"] == {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "a: it is 1; make it 2\nb: it is 3; make it 4",
        "details": {
            "group": "kubeflow.org",
            "kind": "Experiment",
            "name": "demo",
            "causes": [
                {"reason": "x", "field": "a", "message": "it is 1; make it 2"},
                {"reason": "y", "field": "b", "message": "it is 3; make it 4"},
            ],
        },
    }
    assert refused(UnavailableError("gone")).code == 503


def test_warnings_are_single_lines_that_fit_into_a_header() -> None:
    verdict = AdmissionResponse(allowed=True, warnings=("two\nlines", "x" * 300))

    first, second = response(decode_review(body()), verdict)["warnings"]

    assert first == "two lines"
    assert len(second) == 256
    assert "warnings" not in response(decode_review(body("v1beta1")), verdict)


KEYS = st.sampled_from(["a", "b", "a/b", "m~n", "", "0"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, "x", ""]),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS, children, max_size=4),
    max_leaves=12,
)


def apply(value: Any, patch: list[dict[str, Any]]) -> Any:
    """Apply a patch as RFC 6902 says, with nothing tolerated."""
    root = {"": copy.deepcopy(value)}
    for operation in patch:
        keys = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")]
        parent: Any = root
        for key in keys[:-1]:
            parent = parent[int(key)] if isinstance(parent, list) else parent[key]
        last: Any = int(keys[-1]) if isinstance(parent, list) else keys[-1]
        if operation["op"] == "add" and isinstance(parent, list):
            assert 0 <= last <= len(parent)
            parent.insert(last, operation["value"])
        elif operation["op"] == "add":
            parent[last] = operation["value"]
        elif operation["op"] == "remove":
            del parent[last]
        else:
            assert operation["op"] == "replace"
            assert last in parent or isinstance(parent, list)
            parent[last] = operation["value"]
    return root[""]


def typed(value: Any) -> Any:
    """Return a value in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


@given(VALUES, VALUES)
def test_applying_the_difference_gives_the_target(old: Any, new: Any) -> None:
    assert typed(apply(old, diff(old, new))) == typed(new)


@given(VALUES)
def test_the_same_value_makes_no_operation(value: Any) -> None:
    assert diff(value, copy.deepcopy(value)) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param([1, 2, 3], [1, 9, 2, 3], [{"op": "add", "path": "/1", "value": 9}], id="insert in the middle"),
        pytest.param([1, 2, 3], [1, 3], [{"op": "remove", "path": "/1"}], id="remove from the middle"),
        pytest.param([{"a": 1}], [{"a": 2}], [{"op": "replace", "path": "/0/a", "value": 2}], id="change inside"),
        pytest.param({"a/b": {}}, {"a/b": {"~": 0}}, [{"op": "add", "path": "/a~1b/~0", "value": 0}], id="escaped"),
        pytest.param({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}], id="one is not true"),
    ],
)
def test_a_difference_is_small(old: Any, new: Any, expected: list[dict[str, Any]]) -> None:
    assert diff(old, new) == expected
