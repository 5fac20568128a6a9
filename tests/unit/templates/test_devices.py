from __future__ import annotations

from typing import Any

import pytest

from katib.templates.devices import device_errors

PLACE = "spec.containers[0].resources"


def errors_of(**resources: Any) -> list[str]:
    return [str(error) for error in device_errors({"spec": {"containers": [{"resources": resources}]}}, "t")]


@pytest.mark.parametrize("value", ["0.5", 0.5, "500m", "1500m", "1e-1"])
@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu", "rdma/hca", "example.com/tpu"])
def test_a_part_of_a_device_is_refused(name: str, value: object) -> None:
    shown = value if isinstance(value, float) else f'"{value}"'

    assert errors_of(limits={name: value}) == [
        f't.{PLACE}.limits["{name}"]: {shown} is not a whole number; ask for whole devices'
    ]


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"nvidia.com/gpu": 1}},
        {"limits": {"nvidia.com/gpu": "2000m"}, "requests": {"nvidia.com/gpu": "2"}},
        {"limits": {"nvidia.com/gpu": "${trialParameters.cards}"}, "requests": {"nvidia.com/gpu": 1}},
        {"limits": {"nvidia.com/gpu": ["wrong"]}, "requests": None},
        {"requests": {"cpu": "500m", "kubernetes.io/batch-cpu": "0.5", "ephemeral-storage": "1.5Gi"}},
    ],
    ids=["limit", "same", "placeholder", "another check's", "no devices"],
)
def test_what_kubernetes_takes_is_fine(resources: dict[str, Any]) -> None:
    assert errors_of(**resources) == []


def test_a_request_needs_the_same_limit() -> None:
    assert errors_of(limits={"nvidia.com/gpu": 2}, requests={"nvidia.com/gpu": 1}) == [
        f't.{PLACE}.requests["nvidia.com/gpu"]: 1 differs from the limit, 2; give the same number, or the limit alone'
    ]
    assert errors_of(requests={"nvidia.com/gpu": 1}) == [
        (
            f't.{PLACE}.limits["nvidia.com/gpu"]: it is missing, and devices need a limit; '
            "give the number here, as in requests"
        )
    ]


def test_the_limit_of_a_train_job_may_come_from_its_runtime() -> None:
    trainer = {"resourcesPerNode": {"requests": {"nvidia.com/gpu": 1}}}

    assert device_errors({"spec": {"trainer": trainer}}, "t") == []
    trainer["resourcesPerNode"]["requests"]["nvidia.com/gpu"] = "0.5"  # type: ignore[assignment]
    assert [e.path for e in device_errors({"spec": {"trainer": trainer}}, "t")] == [
        't.spec.trainer.resourcesPerNode.requests["nvidia.com/gpu"]'
    ]
