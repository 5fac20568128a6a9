"""Training runtimes: those shipped with this package under the names of Kubeflow Trainer, and those of users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from katib.engine.runtime.objects import Key, Kind, Object
from katib.errors import FieldError
from katib.model.wording import closest, shown
from katib.places.machine.findings import mapping, mapping_at, text
from katib.places.machine.jobs.kinds import Find

TRAINER_VERSION: Final = "trainer.kubeflow.org/v1alpha1"
GROUP: Final = "trainer.kubeflow.org"
RUNTIME = Kind(TRAINER_VERSION, "TrainingRuntime")
CLUSTER_RUNTIME = Kind(TRAINER_VERSION, "ClusterTrainingRuntime")
RUNTIME_KINDS: Final = {kind.kind: kind for kind in (CLUSTER_RUNTIME, RUNTIME)}

SHIPPED: Final = ("torch-distributed", "jax-distributed", "xgboost-distributed", "deepspeed-distributed")
"""Names of the runtimes in the directory `runtimes`."""

_MISSING: Final = {
    "mlx-distributed": "it starts MLX over ssh, with keys and a server that only its image has",
    "torchtune": "it runs recipes of torchtune, and fetches model and data with programs that only images have",
}


@dataclass(frozen=True, slots=True)
class Runtime:
    """A training runtime.

    Attributes:
        kind: ClusterTrainingRuntime or TrainingRuntime.
        spec: Its spec; may be malformed when a user wrote it.
        is_shipped: Whether it came with this package.
    """

    kind: str
    name: str
    spec: Mapping[str, Any]
    is_shipped: bool = False


def runtime_of(train_job: Object, find: Find) -> Runtime | None:
    """Return the runtime that a TrainJob refers to, a user's before a shipped one; None when there is none.

    Args:
        train_job: The TrainJob; may be malformed.
        find: Finds stored objects.
    """
    reference = mapping_at(train_job, "spec.runtimeRef")
    name, kind = text(reference.get("name")), RUNTIME_KINDS.get(str(reference.get("kind") or CLUSTER_RUNTIME.kind))
    if not name or kind is None or (reference.get("apiGroup") or GROUP) != GROUP:
        return None
    namespace = mapping(train_job.get("metadata")).get("namespace", "") if kind == RUNTIME else ""
    if found := find(kind, Key(namespace, name)):
        return Runtime(kind.kind, name, mapping(found.get("spec")))
    if kind == CLUSTER_RUNTIME and name in SHIPPED:
        return shipped_runtime(name)
    return None


@cache
def shipped_runtime(name: str) -> Runtime:
    return Runtime(CLUSTER_RUNTIME.kind, name, _shipped_document(name)["spec"], is_shipped=True)


def shipped_documents() -> tuple[Object, ...]:
    return tuple(map(_shipped_document, SHIPPED))


@cache
def _shipped_document(name: str) -> Object:
    document: Object = yaml.safe_load(files(__package__).joinpath("runtimes", f"{name}.yaml").read_text())
    return document


def unknown_runtime(train_job: Object, path: str) -> FieldError | None:
    """Return why a TrainJob has no runtime; None when its reference is malformed or not known before a trial."""
    reference = mapping_at(train_job, "spec.runtimeRef")
    name, kind, group = (text(reference.get(field)) for field in ("name", "kind", "apiGroup"))
    if group and group != GROUP:
        return FieldError(f"{path}.apiGroup", f"{shown(group)} is not known", f"write {GROUP}", "runtime-reference")
    if kind and kind not in RUNTIME_KINDS:
        remedy = f"write {' or '.join(RUNTIME_KINDS)}"
        return FieldError(f"{path}.kind", f"{shown(kind)} is not known", remedy, "runtime-reference")
    if not name:
        return None
    apply = f"add a {kind or CLUSTER_RUNTIME.kind} of this name to the file"
    if missing := next((why for known, why in _MISSING.items() if name.startswith(known)), ""):
        cause = f"the runtime {shown(name)} cannot run on this machine: {missing}"
        return FieldError(f"{path}.name", cause, f"{apply}, or submit the experiment to Kubernetes", "runtime-missing")
    near = closest(name, SHIPPED)
    remedy = f"did you mean {near}?" if near else f"use one of {', '.join(SHIPPED)}, or {apply}"
    what = kind or CLUSTER_RUNTIME.kind
    return FieldError(f"{path}.name", f"there is no {what} {shown(name)}", remedy, "runtime-missing")
