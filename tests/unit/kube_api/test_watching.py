"""A change is written once for all streams that show it in the same form."""

from __future__ import annotations

import json
from typing import Any

from katib.kube_api.objects import RecentLines, Target
from katib.kube_api.representations import WHOLE, Form
from katib.kube_api.resources import RESOURCES
from katib.kube_api.watching import _Lines

TARGET = Target(RESOURCES[0])


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
    whole, metadata = _Lines(TARGET, WHOLE, recent), _Lines(TARGET, Form("PartialObjectMetadata"), recent)

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
