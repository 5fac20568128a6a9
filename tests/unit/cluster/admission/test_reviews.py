from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from katib.cluster.admission.reviews import ALLOWED, Review, Verdict, decode_review, encode_answer, refused
from katib.errors import FieldError, InvalidError, UnavailableError

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
        {
            "apiVersion": f"admission.k8s.io/{version}",
            "kind": "AdmissionReview",
            "request": {**REQUEST, **request},
        }
    ).encode()


def response(review: Review, verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_answer(review, verdict))["response"]
    return found


def test_a_review_is_read_whole() -> None:
    assert decode_review(body()) == Review(
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
    found = response(decode_review(body()), Verdict(allowed=True, patched={"spec": {"a": 1, "b": 2}}))

    assert found["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(found["patch"])) == [{"op": "add", "path": "/spec/b", "value": 2}]


def test_an_object_patched_to_what_it_is_needs_no_patch() -> None:
    assert "patch" not in response(decode_review(body()), Verdict(allowed=True, patched={"spec": {"a": 1}}))


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
    verdict = Verdict(allowed=True, warnings=("two\nlines", "x" * 300))

    first, second = response(decode_review(body()), verdict)["warnings"]

    assert first == "two lines"
    assert len(second) == 256
    assert "warnings" not in response(decode_review(body("v1beta1")), verdict)
