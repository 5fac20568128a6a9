"""Templates as users write them, for tests about one property of a template."""

from __future__ import annotations

import textwrap
from typing import Any

from katib.model.types import ConfigMapSource, ParameterAssignment, ParameterSpec, TrialParameterSpec, TrialTemplate

METADATA_REFERENCES = {
    "trialName": "${trialSpec.Name}",
    "trialNamespace": "${trialSpec.Namespace}",
    "jobKind": "${trialSpec.Kind}",
    "jobAPIVersion": "${trialSpec.APIVersion}",
}
REFERENCES = {"learningRate": "lr", "momentum": "momentum", **METADATA_REFERENCES}


def job(*args: str, env: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a Job of one container that runs `train` with these arguments; `spec` goes to the Job's spec."""
    container: dict[str, Any] = {"name": "training", "image": "train:1", "command": ["train"], "args": list(args)}
    if env:
        container["env"] = [{"name": name, "value": value} for name, value in env.items()]
    pod = {"containers": [container], "restartPolicy": "Never"}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {**spec, "template": {"spec": pod}}}


def example_job() -> dict[str, Any]:
    """Return a Job that uses every parameter of `REFERENCES`."""
    env = {name: f"${{trialParameters.{name}}}" for name in METADATA_REFERENCES}
    return job("--lr=${trialParameters.learningRate}", "--momentum=${trialParameters.momentum}", env=env)


def inline(trial_spec: dict[str, Any], references: dict[str, str], *, primary: str = "training") -> TrialTemplate:
    """Return a template with an inline object; `references` maps placeholder names to what fills them."""
    return TrialTemplate(
        trial_spec=trial_spec,
        trial_parameters=tuple(TrialParameterSpec(name=n, reference=r) for n, r in references.items()),
        primary_container_name=primary,
    )


def in_config_map(references: dict[str, str], *, primary: str = "training") -> TrialTemplate:
    """Return a template whose text is kept in ConfigMap kubeflow/templates under `job.yaml`."""
    source = ConfigMapSource(config_map_name="templates", config_map_namespace="kubeflow", template_path="job.yaml")
    return TrialTemplate(
        config_map=source,
        trial_parameters=tuple(TrialParameterSpec(name=n, reference=r) for n, r in references.items()),
        primary_container_name=primary,
    )


def assign(**values: str) -> list[ParameterAssignment]:
    """Return assignments."""
    return [ParameterAssignment(name=name, value=value) for name, value in values.items()]


def space(*names: str) -> list[ParameterSpec]:
    """Return a search space of parameters with these names."""
    return [ParameterSpec(name=name, parameter_type="double") for name in names]


def dedent(text: str) -> str:
    """Return a text block without its indentation."""
    return textwrap.dedent(text).lstrip("\n")
