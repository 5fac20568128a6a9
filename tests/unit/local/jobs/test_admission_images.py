"""What changes when containers run in their images."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.support.admission import HOST, a_job, a_job_with_volume, check, errors_of, places_of
from tests.support.golden import Golden

IMAGES = dataclasses.replace(HOST, runs_images=True, limits=frozenset({"cpu", "memory"}))
CONTAINER = "spec.template.spec.containers[0]"


def notices(job: dict[str, Any], host: Any = IMAGES) -> list[str]:
    errors, found = check(job, host)
    assert errors == []
    return found


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({"command": None}, id="only an entry point"),
        pytest.param({"command": ["python3", "/opt/mnist/mnist.py"]}, id="a script of the image"),
        pytest.param({"command": ["/no/such/program"]}, id="a program of the image"),
        pytest.param({"workingDir": "/no/such/directory"}, id="a directory of the image"),
        pytest.param({"imagePullPolicy": "Always"}, id="a pull policy"),
        pytest.param({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, id="limits"),
        pytest.param({"securityContext": {"runAsUser": 7, "runAsGroup": 7, "privileged": True}}, id="rights"),
        pytest.param({"securityContext": {"capabilities": {"add": ["NET_RAW"], "drop": ["ALL"]}}}, id="capabilities"),
        pytest.param({"securityContext": {"readOnlyRootFilesystem": True}}, id="files that cannot be changed"),
        pytest.param({"securityContext": {"runAsUser": 7, "runAsNonRoot": True}}, id="not root"),
    ],
)
def test_what_an_image_brings_needs_nothing_of_this_machine(container: dict[str, Any]) -> None:
    assert notices(a_job(image="train:1", **container)) == []


def test_a_volume_needs_no_mention_where_it_is_mounted() -> None:
    mount = {"name": "v", "mountPath": "/data", "readOnly": True}

    assert notices(a_job_with_volume({"emptyDir": {}}, [mount], {"image": "i"})) == []


def test_an_image_is_needed(golden: Golden) -> None:
    golden(errors_of(a_job(), IMAGES))


@pytest.mark.parametrize(
    ("rights", "field"),
    [
        ({"runAsNonRoot": True}, "runAsNonRoot"),
        ({"runAsNonRoot": True, "runAsUser": 0}, "runAsNonRoot"),
        ({"runAsGroup": 5}, "runAsGroup"),
    ],
)
def test_a_user_that_the_runtime_cannot_take_is_refused(rights: dict[str, Any], field: str) -> None:
    job = a_job(image="i", securityContext=rights)

    assert places_of(job, IMAGES) == [(f"{CONTAINER}.securityContext.{field}", "pod-rights")]


def test_limits_that_the_account_cannot_set_are_a_notice(golden: Golden) -> None:
    host = dataclasses.replace(IMAGES, limits=frozenset({"memory"}))

    (notice,) = notices(a_job(image="i", resources={"limits": {"cpu": "1", "memory": "1Gi"}}), host)

    golden(notice)
