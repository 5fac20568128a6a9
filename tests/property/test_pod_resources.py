"""A pod that says what it needs as a whole stays one that Kubernetes takes, whatever its collector asks for."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from katib.api.quantities import add_quantities, parse_quantity
from katib.cluster.configuration.models import MetricsCollectorConfig, Resources
from katib.cluster.injection import inject
from tests.support.pods import injected_trial, injection_settings, pod

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
        kind="StdOut", image="c", resources=Resources.model_validate(collector), native_sidecar=native
    )
    settings = injection_settings(cluster_has_native_sidecars=native, collectors={"StdOut": entry})

    injected = inject(original, injected_trial(), settings)

    assert is_valid(original["spec"])
    assert is_valid(injected["spec"])
    assert inject(injected, injected_trial(), settings) == injected


@given(one=QUANTITIES, other=QUANTITIES)
def test_a_sum_is_exact(one: str, other: str) -> None:
    assert parse_quantity(add_quantities(one, other)) == parse_quantity(one) + parse_quantity(other)
