"""The checks of a Job take any object: they find errors, they never fail."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from katib.local.admission import check_job
from katib.templates.job_schema import check_job_schema, job_schema
from tests.support.admission import HOST, PATH

FIELD_NAMES = sorted({field for model in job_schema().models.values() for field in model.fields})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "Never",
            "Indexed",
            "Always",
            "1e999999999",
            "500m",
            "/",
            "/data",
            "a" * 5000,
            "/" + "a" * 300,
            "\0",
            "${trialParameters.x}",
            "a.svc",
        ]
    ),
)
KEYS = st.one_of(st.sampled_from(FIELD_NAMES), st.text(max_size=5))
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def values_of(kind: str, depth: int) -> st.SearchStrategy[Any]:
    """Return mostly well-formed values of a type of the schema."""
    if kind.startswith("[]"):
        return st.lists(values_of(kind[2:], depth), max_size=2) | ANYTHING
    if kind in job_schema().models and depth:
        fields = job_schema().models[kind].fields
        return st.dictionaries(st.sampled_from(sorted(fields)), st.none(), max_size=5).flatmap(
            lambda chosen: st.fixed_dictionaries({field: values_of(fields[field], depth - 1) for field in chosen})
        )
    return ANYTHING


def jobs() -> st.SearchStrategy[dict[str, Any]]:
    pod = values_of("V1PodSpec", 4)
    container = values_of("V1Container", 3)
    spec = values_of("V1JobSpec", 4)
    return st.builds(
        lambda spec, pod, containers: {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {**spec, "template": {"spec": {**pod, "containers": containers, "initContainers": containers}}},
        },
        spec,
        pod,
        st.lists(container, max_size=2) | ANYTHING,
    )


@given(job=jobs())
@settings(max_examples=80, deadline=None)
def test_any_job_is_judged(job: dict[str, Any]) -> None:
    errors, notices = check_job(job, PATH, host=HOST)

    for error in [*errors, *check_job_schema(job, PATH)]:
        assert error.path.startswith(PATH)
        assert error.cause
        assert error.remedy
        assert error.origin
        assert "\n" not in str(error)
    assert all(notice.startswith(PATH) and "\n" not in notice for notice in notices)


@given(obj=st.dictionaries(KEYS, ANYTHING, max_size=4))
@settings(deadline=None)
def test_any_object_is_judged(obj: dict[str, Any]) -> None:
    check_job(obj, PATH, host=HOST)
    check_job_schema({"apiVersion": "batch/v1", "kind": "Job", **obj}, PATH)
