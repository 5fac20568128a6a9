"""Which checkpoints no trial will start from."""

from __future__ import annotations

from katib.api.checkpoints import CheckpointOwner, unneeded
from katib.api.names import MEMBER_LABEL, PARENT_LABEL, STEP_LABEL


def a_step(name: str, parent: str = "", *, state: str = "measured") -> CheckpointOwner:
    """Return a step of a population, named by its member and its number; or a trial of hyperband, without a number."""
    labels = {PARENT_LABEL: parent} if parent else {}
    if name[1:]:
        labels |= {MEMBER_LABEL: name[0], STEP_LABEL: name[1:]}
    return CheckpointOwner(name, labels, state != "running", state == "measured")


def test_of_each_member_the_latest_measured_step_and_what_follows_it_is_needed() -> None:
    assert unneeded([a_step("a0"), a_step("b0")]) == []
    assert unneeded([a_step("a0"), a_step("a1", "a0"), a_step("b0")]) == ["a0"]
    assert unneeded([a_step("a0"), a_step("a1", "a0", state="failed"), a_step("a2", "a0")]) == ["a0", "a1"]
    assert unneeded([a_step(f"a{i}") for i in range(11)]) == [f"a{i}" for i in range(10)]


def test_what_a_running_trial_started_from_is_needed() -> None:
    steps = [a_step("a0"), a_step("a1", "a0"), a_step("b0")]

    assert unneeded([*steps, a_step("b1", "a0", state="running")]) == []
    assert unneeded([*steps, a_step("b1", "a1", state="running")]) == ["a0"]


def test_what_a_failed_step_started_from_is_needed_as_long_as_it_is_tried_again() -> None:
    steps = [a_step("a0"), a_step("a1", "a0"), a_step("b0"), a_step("b1", "a0", state="failed")]

    assert unneeded(steps) == []
    assert unneeded([*steps, a_step("b2", "a0")]) == ["a0", "b0", "b1"]


def test_without_members_a_trial_is_needed_until_what_continues_it_has_been_measured() -> None:
    assert unneeded([a_step("a"), a_step("b", "a", state="running"), a_step("c")]) == []
    assert unneeded([a_step("a"), a_step("b", "a", state="failed"), a_step("c")]) == []
    assert unneeded([a_step("a"), a_step("b", "a"), a_step("c")]) == ["a"]
