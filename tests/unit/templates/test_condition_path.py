from __future__ import annotations

from typing import Any

import pytest

from katib.errors import InvalidError
from katib.model.templates import SatisfiedCondition, check_condition, parse
from katib.model.templates.condition_path import scalar_notices

COMPLETE = 'status.conditions.#(type=="Complete")#|#(status=="True")#'
FAILED = 'status.conditions.#(type=="Failed")#|#(status=="True")#'
ARGO = 'status.[@this].#(phase=="Succeeded")#'


def status(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"conditions": list(conditions)}}


def condition(kind: str, state: str, **words: str) -> dict[str, Any]:
    return {"type": kind, "status": state, **words}


DONE = condition("Complete", "True", reason="Done", message="all went well")


@pytest.mark.parametrize(
    ("obj", "path", "expected"),
    [
        (status(DONE), COMPLETE, SatisfiedCondition("Done", "all went well")),
        (status(condition("Complete", "False")), COMPLETE, None),
        (status(condition("Complete", "False"), condition("Complete", "True", reason="second")), COMPLETE,
         SatisfiedCondition("second")),
        ({}, COMPLETE, None),
        ({"status": {}}, COMPLETE, None),
        ({"status": {"phase": "Succeeded", "message": "hi"}}, ARGO, SatisfiedCondition("", "hi")),
        ({"status": {"phase": "Failed"}}, ARGO, None),
        ({}, ARGO, None),
        ({"status": {"succeeded": 1}}, "status.[@this].#(succeeded==1)", SatisfiedCondition()),
        ({"status": {"succeeded": 1}}, "status.succeeded", None),
        (status(condition("Complete", "False")), 'status.conditions.#(type=="Complete")', SatisfiedCondition()),
        (status(DONE), "", None),
        (status(condition("Succeeded", "False")), 'status.conditions.#(type=="Succeeded")#|#(status=="False")#',
         SatisfiedCondition()),
    ],
    ids=[
        "complete", "not-complete", "second", "no-status", "no-conditions", "argo", "argo-other", "argo-none", "count",
        "number", "careless", "empty", "tekton",
    ],
)  # fmt: skip
def test_the_paths_of_katib_and_its_examples(obj: Any, path: str, expected: SatisfiedCondition | None) -> None:
    assert parse(path).evaluate(obj) == expected


@pytest.mark.parametrize(
    ("conditions", "verdicts"),
    [
        ([condition("Complete", "False"), condition("Failed", "False")], (False, False)),
        ([condition("Failed", "False"), condition("Complete", "True")], (True, False)),
        ([condition("Failed", "True")], (False, True)),
        ([condition("FailureTarget", "True"), condition("Failed", "True")], (False, True)),
        ([condition("SuccessCriteriaMet", "True"), condition("Complete", "True")], (True, False)),
    ],
    ids=["running", "succeeded", "failed", "failure-target", "success-criteria"],
)
def test_the_states_of_a_job(conditions: list[dict[str, Any]], verdicts: tuple[bool, bool]) -> None:
    obj = status(*conditions)

    assert (parse(COMPLETE).evaluate(obj) is not None, parse(FAILED).evaluate(obj) is not None) == verdicts


ITEMS = {
    "items": [
        {"name": "a", "n": 1, "on": True, "sub": {"x": {"reason": "deep"}}},
        {"name": "b", "n": 2.5, "on": False, "none": None},
        {"name": "c d", "on": "True"},
        "text",
        7,
    ]
}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('name=="a"', ["a"]),
        ("name=a", ["a"]),
        ('name != "a"', ["b", "c d"]),
        ('name>"a"', ["b", "c d"]),
        ('name<="b"', ["a", "b"]),
        ('name%"c*"', ["c d"]),
        ('name%"?"', ["a", "b"]),
        ('name!%"c*"', ["a", "b"]),
        ("n>1", ["b"]),
        ("n>=1", ["a", "b"]),
        ("n<2.5", ["a"]),
        ('n=="1"', ["a"]),
        ("n%1", []),
        ("n==word", []),
        ("n>word", ["a", "b"]),
        ("on==true", ["a"]),
        ("on!=true", ["b"]),
        ("on>false", ["a"]),
        ("on>=false", ["a"]),
        ("on<true", ["b"]),
        ('on=="True"', ["c d"]),
        ("none==null", []),
        ("n", ["a", "b"]),
        ("sub.x.reason==deep", ["a"]),
        ('name=="c d"', ["c d"]),
        ('name=="a)|b"', []),
    ],
)
def test_queries_compare_by_the_type_they_find(query: str, names: list[str]) -> None:
    matches = parse(f"items.#({query})#").evaluate(ITEMS)
    first = parse(f"items.#({query})").evaluate(ITEMS)
    every = [item for item in names if parse(f'items.#({query})#|#(name=="{item}")#').evaluate(ITEMS)]

    assert (matches is not None) == (first is not None) == bool(names)
    assert every == names


@pytest.mark.parametrize(
    ("obj", "path", "reason"),
    [
        (ITEMS, 'items.#(name=="a").sub.x', "deep"),
        (ITEMS, 'items.#(name=="a")#.sub.x', "deep"),
        (ITEMS, 'items.#(name=="a")#.sub|0.x', "deep"),
        (ITEMS, "items.0.sub.x", "deep"),
        (ITEMS, "items|0|sub|x", "deep"),
        ({"a.b": {"reason": "dotted"}}, r"a\.b", "dotted"),
        ({"a|b": {"reason": "piped"}}, r"a\|b", "piped"),
        ([{"reason": "top"}], "#(reason)", "top"),
        ({"l": ["x", "y"], "reason": "own"}, '[@this].#(l.#(=="y"))', "own"),
        ({"l": [[1, 2], [3]]}, "l.#(#(==3))#|[@this].#(0)#.nothing", None),
        ({"l": [{"reason": "a)b", "t": 'say "x"'}]}, r'l.#(t=="say \"x\"")', "a)b"),
        ({"reason": 5, "message": ["x"]}, "[@this]", ""),
        ({"l": [[{"reason": "in"}]]}, "l.0", "in"),
        ({"l": ["text", {"reason": "second"}]}, "l", None),
        ({"0": {"reason": "key"}}, "0", "key"),
    ],
)
def test_steps_lead_where_the_grammar_says(obj: Any, path: str, reason: str | None) -> None:
    found = parse(path).evaluate(obj)

    assert (found.reason if found else None) == reason


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("a..b", "a key is missing"),
        ("a.", "a key is missing"),
        (".", "a key is missing"),
        ("a.#", '"#" is not supported'),
        ("a.#.b", '"#.b" is not supported'),
        ("a.@reverse", '"@reverse" is not supported'),
        ("{a,b}", '"{a,b}" is not supported'),
        ("[a,b]", '"[a,b]" is not supported'),
        ("a*", 'the wildcard "*" is not supported'),
        ("a.#(b", "a query is not closed"),
        ('a.#(b=="c)', "a quote is not closed"),
        ("a.#()", "a query is empty"),
        ("a.#(b==~true)", '"==~true" is not supported'),
        ("a.#(b!c)", '"!c" is not supported'),
        ("a.#(b==1)x", '"x" is not expected here'),
        ("a" + ".a" * 100, "it has more than 64 steps"),
        ("#(" * 50 + "a" + ")" * 50, "queries are nested too deeply"),
    ],
)
def test_a_path_outside_the_grammar_says_what_is_wrong_with_it(path: str, cause: str) -> None:
    errors = check_condition(path, "spec.trialTemplate.successCondition")

    assert [(e.path, e.cause, e.origin) for e in errors] == [
        ("spec.trialTemplate.successCondition", f'"{path}": {cause}', "condition-path")
    ]
    with pytest.raises(InvalidError):
        parse(path)


def test_a_path_of_the_grammar_has_no_errors_and_is_parsed_once() -> None:
    assert check_condition(COMPLETE, "spec.trialTemplate.successCondition") == []
    assert check_condition("", "spec.trialTemplate.successCondition") == []

    assert parse(COMPLETE) is parse(COMPLETE)


@pytest.mark.parametrize(
    ("path", "is_noted"),
    [
        ("status.succeeded", True),
        ("status.completionTime", True),
        ('status.conditions.#(type=="Complete").status', True),
        ('status.conditions.#(type=="Complete")#.status', True),
        (COMPLETE, False),
        (ARGO, False),
        ("status.conditions", False),
        ("status.phase", False),
        ("", False),
    ],
)
def test_a_path_to_a_text_or_a_number_is_noted(path: str, *, is_noted: bool) -> None:
    notices = scalar_notices(path, "spec.trialTemplate.successCondition", COMPLETE)

    assert [COMPLETE in notice for notice in notices] == [True] * is_noted
