"""Whatever an API server sends, the webhooks of Experiments allow it, refuse it with a reason, or patch it rightly."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from katib.engine.controllers.kinds import EXPERIMENT
from katib.errors import KatibError
from katib.model.decoding import decode
from katib.model.defaults import with_defaults
from katib.places.cluster.admission.reviews import AdmissionResponse, AdmissionReview, encode_answer, refused
from katib.places.cluster.webhooks.experiments import (
    DEFAULTER_PATH,
    INJECTION_LABEL,
    VALIDATOR_PATH,
    ExperimentAdmission,
)
from tests.support.experiments import an_experiment, an_int
from tests.support.gate import CATALOG
from tests.support.memory_store import MemoryStore

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "0", "File", "x"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "kind", "list", "containers", "command", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
SEED = an_experiment(
    parameters=[*an_experiment()["spec"]["parameters"], an_int("depth")],
    metricsCollectorSpec={"collector": {"kind": "File"}, "source": {"fileSystemPath": {"path": "/x"}}},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything in a value."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, child in items for found in [(*path, key), *places(child, (*path, key))]]


PLACES = [path for path in places(SEED) if path[0] == "spec"]


@st.composite
def experiments(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an experiment in which a few values are something else."""
    raw = copy.deepcopy(SEED)
    for path in draw(st.lists(st.sampled_from(PLACES), max_size=3)):
        parent: Any = raw
        for key in path[:-1]:
            parent = parent[key] if holds(parent, key) else None
        if holds(parent, path[-1]):
            parent[path[-1]] = draw(JSON)
    return raw


def holds(parent: Any, key: Any) -> bool:
    return (isinstance(parent, dict) and key in parent) or (
        isinstance(parent, list) and isinstance(key, int) and key < len(parent)
    )


def admission() -> ExperimentAdmission:
    store = MemoryStore({EXPERIMENT})
    metadata = {"name": "default", "labels": {INJECTION_LABEL: "enabled"}}
    store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return ExperimentAdmission(store, catalog=lambda: CATALOG, collectors=lambda: ("StdOut", "File"))


def answer(path: str, review: AdmissionReview) -> AdmissionResponse:
    try:
        return admission().handlers()[path](review)
    except KatibError as error:
        return refused(error)


@settings(deadline=None)
@given(experiments(), experiments(), st.sampled_from(["CREATE", "UPDATE"]))
def test_every_review_gets_an_answer(new: dict[str, Any], old: dict[str, Any], operation: str) -> None:
    review = AdmissionReview("u", operation, "default", "demo", new, old if operation == "UPDATE" else {})
    for path in (DEFAULTER_PATH, VALIDATOR_PATH):
        verdict = answer(path, review)

        assert verdict.allowed or verdict.message
        assert json.loads(encode_answer(review, verdict))["response"]["uid"] == "u"


@settings(deadline=None)
@given(experiments())
def test_defaults_are_added_once_and_mean_the_same_as_everywhere(raw: dict[str, Any]) -> None:
    before = copy.deepcopy(raw)
    patched = answer(DEFAULTER_PATH, AdmissionReview("u", "CREATE", "default", "demo", raw)).patched

    assert raw == before
    if patched is not None:
        assert decode(patched)[0] == with_defaults(decode(raw)[0])
        assert answer(DEFAULTER_PATH, AdmissionReview("u", "CREATE", "default", "demo", patched)).patched == patched
