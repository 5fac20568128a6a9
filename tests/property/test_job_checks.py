"""Checks of Jobs take any object, and pods that say what they need as a whole stay valid with any collector."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from katib.model.quantities import add_quantities, parse_quantity
from katib.model.templates.job_schema import check_job_schema, job_schema
from katib.places.cluster.configuration.models import ContainerResources, MetricsCollectorConfig
from katib.places.cluster.injection import inject
from katib.places.machine.admission import check_job
from tests.support.admission import HOST, PATH
from tests.support.pods import injected_trial, injection_settings, pod

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


NAMES = ("cpu", "memory")
QUANTITIES = st.builds(
    "{}{}".format, st.integers(0, 10**6), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"])
)


@st.composite
def resources(draw: st.DrawFn) -> dict[str, dict[str, str]]:
    """Return what a container asks for: per resource a request, a limit, both or nothing."""
    found: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name in NAMES:
        low, high = sorted([draw(QUANTITIES), draw(QUANTITIES)], key=parse_quantity)
        shape = draw(st.sampled_from(["both", "request", "limit", "nothing"]))
        if shape in ("both", "request"):
            found["requests"][name] = low
        if shape in ("both", "limit"):
            found["limits"][name] = high
    return found


def request_of(own: dict[str, dict[str, str]], name: str) -> Decimal:
    """Return what a container requests: its limit where it says nothing else."""
    return parse_quantity(own["requests"].get(name, own["limits"].get(name, "0")))


def is_valid(spec: dict[str, Any]) -> bool:
    """Return whether Kubernetes takes the resources of a pod."""
    whole = spec["resources"]
    everyone = [c.get("resources", {}) for c in [*spec["containers"], *spec.get("initContainers", ())]]
    everyone = [{"requests": own.get("requests", {}), "limits": own.get("limits", {})} for own in everyone]
    for name in NAMES:
        request, limit = whole["requests"].get(name), whole["limits"].get(name)
        if request is not None and sum(request_of(own, name) for own in everyone) > parse_quantity(request):
            return False
        if limit is not None:
            used = [own["limits"].get(name, "0") for own in everyone]
            if max(map(parse_quantity, used)) > parse_quantity(limit):
                return False
            if parse_quantity(request or "0") > parse_quantity(limit):
                return False
    return True


@given(main=resources(), side=resources(), collector=resources(), spare=QUANTITIES, native=st.booleans())
def test_an_injected_pod_is_as_valid_as_it_was(
    main: dict[str, Any], side: dict[str, Any], collector: dict[str, Any], spare: str, *, native: bool
) -> None:
    original = pod("x")
    original["spec"]["containers"][0]["resources"] = main
    original["spec"]["containers"].append({"name": "side", "image": "i", "resources": side})
    whole: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name in NAMES:
        needed = f"{request_of(main, name) + request_of(side, name):f}"
        whole["requests"][name] = needed
        limits = [own["limits"].get(name, "0") for own in (main, side)]
        whole["limits"][name] = reduce(add_quantities, [needed, *limits, spare])
    original["spec"]["resources"] = whole
    entry = MetricsCollectorConfig(
        kind="StdOut", image="c", resources=ContainerResources.model_validate(collector), native_sidecar=native
    )
    settings = injection_settings(collectors={"StdOut": entry})

    injected = inject(original, injected_trial(), settings)

    assert is_valid(original["spec"])
    assert is_valid(injected["spec"])
    assert inject(injected, injected_trial(), settings) == injected


@given(one=QUANTITIES, other=QUANTITIES)
def test_a_sum_is_exact(one: str, other: str) -> None:
    assert parse_quantity(add_quantities(one, other)) == parse_quantity(one) + parse_quantity(other)
