"""Who owns which fields, and what an apply makes of an object."""

from __future__ import annotations

from typing import Any

import pytest

from katib.kube_api.applying import BEFORE_FIRST, ConflictsError, applied, read_fields, updated

Json = dict[str, Any]

NOW = "2026-01-01T00:00:00Z"


def job(**fields: Any) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": fields}


def containers(*names: str, **fields: Any) -> Json:
    return job(containers=[{"name": name, **fields} for name in names])


def apply(old: Json | None, config: Json, manager: str = "a", *, force: bool = False) -> Json:
    return applied(old, config, manager, NOW, force=force, is_keyed=True)


def managers(obj: Json) -> dict[str, set[tuple[str, ...]]]:
    return {entry["manager"]: set(read_fields(entry)) for entry in obj["metadata"].get("managedFields", ())}


def test_what_is_applied_is_owned_and_what_is_left_out_the_next_time_goes() -> None:
    first = apply(None, job(a=1, b=2))
    second = apply(first, job(a=1))

    assert first["spec"] == {"a": 1, "b": 2}
    assert second["spec"] == {"a": 1}
    assert managers(second) == {"a": {("f:spec", "f:a")}}


def test_the_same_configuration_changes_nothing() -> None:
    first = apply(None, job(a=1))

    assert applied(first, job(a=1), "a", "2027-01-01T00:00:00Z", force=False, is_keyed=True) == first


def test_a_field_of_another_manager_is_a_conflict_unless_it_has_the_value_already() -> None:
    first = apply(None, job(a=1))
    shared = apply(first, job(a=1, b=2), "b")
    with pytest.raises(ConflictsError) as refused:
        apply(shared, job(a=3), "c")
    forced = apply(shared, job(a=3), "c", force=True)

    assert managers(shared) == {"a": {("f:spec", "f:a")}, "b": {("f:spec", "f:a"), ("f:spec", "f:b")}}
    assert refused.value.conflicts == (("a", ".spec.a"), ("b", ".spec.a"))
    assert forced["spec"] == {"a": 3, "b": 2}
    assert managers(forced) == {"b": {("f:spec", "f:b")}, "c": {("f:spec", "f:a")}}


def test_what_was_there_before_the_first_apply_has_an_owner() -> None:
    old = job(a=1, b=2)
    with pytest.raises(ConflictsError):
        apply(old, job(a=2))

    assert set(managers(apply(old, job(a=1)))) == {BEFORE_FIRST, "a"}


def test_elements_of_keyed_lists_have_owners_of_their_own() -> None:
    first = apply(None, containers("one", image="x"))
    second = apply(first, containers("two", image="y"), "b")
    third = apply(second, containers("two"), "b")
    last = apply(third, job(containers=[]), "b")

    assert [one["name"] for one in second["spec"]["containers"]] == ["one", "two"]
    assert third["spec"]["containers"][1] == {"name": "two"}
    assert [one["name"] for one in last["spec"]["containers"]] == ["one"]


def test_lists_of_custom_kinds_are_replaced_as_a_whole() -> None:
    first = applied(None, containers("one"), "a", NOW, force=False, is_keyed=False)
    second = applied(first, containers("two"), "a", NOW, force=False, is_keyed=False)

    assert second["spec"]["containers"] == [{"name": "two"}]


def test_another_write_takes_over_what_it_changes() -> None:
    first = apply(None, job(a=1, b=2))
    edited = updated(first, {**first, "spec": {"a": 5}}, "editor", NOW, is_keyed=True)

    assert managers(edited) == {"editor": {("f:spec", "f:a")}}
    assert updated(job(a=1), job(a=2), "editor", NOW, is_keyed=True) == job(a=2)
    forgotten = {**first, "metadata": {**first["metadata"], "managedFields": []}}
    assert updated(first, forgotten, "editor", NOW, is_keyed=True)["metadata"] == {"name": "j"}
