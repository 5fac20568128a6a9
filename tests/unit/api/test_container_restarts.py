"""Whether a container runs again, by all that may say so."""

from __future__ import annotations

from typing import Any

import pytest

from katib.api.container_restarts import runs_again, unknown_rules


def rule(operator: str, *values: int, action: str = "Restart") -> dict[str, Any]:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}


ALL = rule("In", 88, action="RestartAllContainers")


@pytest.mark.parametrize(
    ("own", "rules", "policy", "again"),
    [
        (None, [], "Never", set()),
        (None, [], "OnFailure", {3, 4, 88}),
        (None, [], "Always", {0, 3, 4, 88}),
        ("OnFailure", [], "Never", {3, 4, 88}),
        ("Always", [], "Never", {0, 3, 4, 88}),
        ("Never", [], "OnFailure", set()),
        ("Never", [], "Always", set()),
        ("Never", [rule("In", 3)], "Never", {3}),
        ("Never", [rule("NotIn", 3)], "Never", {0, 4, 88}),
        ("Never", [rule("In", 3), rule("In", 4)], "OnFailure", {3, 4}),
        ("Never", [ALL], "Never", {88}),
        ("OnFailure", [rule("In", 0)], "Never", {0, 3, 4, 88}),
        (None, [rule("In", 3)], "Never", set()),  # rules need a policy of the container
        ("Never", [{"action": "Restart"}], "Never", set()),
    ],
)
def test_what_counts(own: str | None, rules: list[dict[str, Any]], policy: str, again: set[int]) -> None:
    container = {"name": "main", "restartPolicyRules": rules, **({"restartPolicy": own} if own else {})}

    assert {code for code in (0, 3, 4, 88) if runs_again(container, policy, code)} == again


@pytest.mark.parametrize(
    ("rules", "of_program", "of_another"),
    [
        ([rule("In", 3), ALL], [], []),
        ([rule("In", 3, action="Reboot")], ["[0].action"], ["[0].action"]),
        ([ALL, rule("Between", 3, 5)], ["[1].exitCodes.operator"], []),
        ([{"action": "Restart", "signals": ["SIGKILL"]}], ["[0].signals"], []),
        ([{"exitCodes": {}}], ["[0].action", "[0].exitCodes.operator"], ["[0].action"]),
        (["x"], [], []),
        ("x", [], []),
    ],
)
def test_rules_that_nobody_knows_are_named(rules: Any, of_program: list[str], of_another: list[str]) -> None:
    found = [
        [
            error.path.removeprefix("c.restartPolicyRules")
            for error in unknown_rules(container, "c", is_program=is_program)
        ]
        for container in ({"restartPolicyRules": rules},)
        for is_program in (True, False)
    ]

    assert found == [of_program, of_another]


def test_a_misspelt_action_gets_the_one_that_was_meant() -> None:
    (error,) = unknown_rules({"restartPolicyRules": [rule("In", 3, action="Restrat")]}, "spec.c[0]", is_program=True)

    assert str(error) == (
        'spec.c[0].restartPolicyRules[0].action: "Restrat" is not known here, so the end of the program could not be '
        "recognized; did you mean Restart? use one of Restart, RestartAllContainers"
    )
