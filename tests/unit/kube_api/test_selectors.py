"""Selectors, in the forms that Kubernetes documents."""

from __future__ import annotations

import pytest

from katib.kube_api.selectors import selector_of
from katib.kube_api.statuses import StatusError

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
