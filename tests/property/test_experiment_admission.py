"""Whatever arrives at the edge, the answer is an experiment or an InvalidError, never another exception."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st

from katib.errors import FieldError, InvalidError
from katib.model.defaults import with_defaults
from katib.model.types import Experiment
from katib.model.validation import admit_update, find_warnings
from katib.model.yaml_text import parse_yaml
from katib.places.machine import open_catalog
from tests.support.experiments import a_choice, an_experiment, an_int, load_experiment
from tests.support.gate import admit_submission, admitted

Result = TypeVar("Result")

TEXTS = st.text(max_size=8) | st.sampled_from(
    [
        "",
        "0",
        "-1",
        "1e999",
        "nan",
        "int",
        "double",
        "list",
        "normal",
        "StdOut",
        "File",
        "${trialParameters.x}",
        "/x",
        "[",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
KEYS = TEXTS | st.sampled_from(["name", "spec", "metadata", "kind", "parameters", "trialSpec", "feasibleSpace", "min"])
WORDS = st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), max_size=8)
PRINTABLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))

SEED = an_experiment(
    parameters=[*an_experiment()["spec"]["parameters"], an_int("depth", step="1"), a_choice("optimizer", ["a", "b"])],
    earlyStopping={"algorithmName": "medianstop", "algorithmSettings": [{"name": "start_step", "value": "2"}]},
    metricsCollectorSpec={
        "collector": {"kind": "File"},
        "source": {"fileSystemPath": {"path": "/x"}, "filter": {"metricsFormat": ["(a)=(b)"]}, "httpGet": {"port": 1}},
    },
    nasConfig={"graphConfig": {"inputSizes": [1]}, "operations": [{"operationType": "x", "parameters": []}]},
    maxFailedTrialCount=2,
    resumePolicy="LongRunning",
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Return every container with every key or index in it."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, child in items for place in ((node, key), *places(child))]


@st.composite
def mutants(draw: st.DrawFn) -> dict[str, Any]:
    """Return a valid experiment in which a few values were exchanged, added or taken out."""
    raw = copy.deepcopy(SEED)
    for _ in range(draw(st.integers(1, 3))):
        found = places(raw)
        node, key = found[draw(st.integers(0, len(found) - 1))]
        if isinstance(node, dict) and draw(st.booleans()):
            del node[key]
            node[draw(KEYS)] = draw(JSON)
        else:
            node[key] = draw(JSON)
    return raw


def outcome(call: Callable[..., Result], *args: Any) -> tuple[Result | None, tuple[FieldError, ...]]:
    """Return what the call returned, or the errors it refused its input with, each checked to be one line."""
    try:
        return call(*args), ()
    except InvalidError as refusal:
        errors = refusal.errors

    assert errors
    for error in errors:
        assert str(error).splitlines() == [str(error)]
        assert error.origin
        assert error.remedy
    return None, errors


@given(mutants())
@settings(max_examples=150, deadline=None)
def test_a_damaged_experiment_is_admitted_or_refused(raw: dict[str, Any]) -> None:
    experiment, _ = outcome(admitted, raw)

    if experiment is not None:
        assert with_defaults(experiment) == experiment
        assert Experiment.decode(experiment.encode()) == experiment
        warnings = find_warnings(experiment.spec, open_catalog())
        assert {warning.origin for warning in warnings} <= {"discrete-not-numeric", "setting-range"}


@given(JSON)
@settings(max_examples=100, deadline=None)
def test_any_document_is_admitted_or_refused(value: Any) -> None:
    header = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Experiment", "metadata": {"name": "x"}, "spec": value}
    for document in (value, header):
        outcome(lambda text: admit_submission(load_experiment(text, "x.json", "default")), json.dumps(document))


@given(mutants())
@settings(max_examples=100, deadline=None)
def test_any_update_is_admitted_or_refused(raw: dict[str, Any]) -> None:
    old = with_defaults(Experiment.decode(SEED))

    outcome(lambda: admit_update(load_experiment(json.dumps(raw), "x.json", "default"), old))


@given(st.text() | st.text(alphabet="ab:-?[]{}&*!|>'\"%@`#,<~ \n\t\\", max_size=40) | st.binary(max_size=40))
@example("? ? ? a")
@example("- - - &a\n- *a")
@example("%YAML 1.1\n---\na")
@settings(max_examples=250, deadline=None)
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    outcome(load_experiment, text, "x.yaml", "default")


@given(st.recursive(PRINTABLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3)))
@settings(max_examples=100, deadline=None)
def test_json_means_the_same_to_both_readers(value: Any) -> None:
    """A comment in front sends the text to the YAML reader."""
    text = json.dumps({"a": value}, ensure_ascii=False)

    assert parse_yaml(text, "x.json")[0].data == parse_yaml(f"# as YAML\n{text}", "x.yaml")[0].data == {"a": value}
