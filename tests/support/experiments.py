"""Builders of raw experiments: valid as they are, so that a test says only what it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from katib.model.loading import Submission, experiment_of, load_documents
from katib.model.types import API_VERSION

COMMAND = "echo loss=${trialParameters.learningRate}"


def an_experiment(
    *, name: str = "demo", namespace: str = "default", command: str = COMMAND, **spec: Any
) -> dict[str, Any]:
    """Return a valid raw Experiment: random search of one double, run as a Job, three trials, two at a time.

    Args:
        name: `metadata.name`.
        namespace: `metadata.namespace`; empty leaves it out.
        command: Shell text of the trial.
        spec: Fields of `spec` by their JSON name (`maxTrialCount=5`); None removes a field.
    """
    defaults = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {"algorithmName": "random"},
        "parameters": [a_double("lr")],
        "trialTemplate": a_template(command),
        "maxTrialCount": 3,
        "parallelTrialCount": 2,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Experiment",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {key: value for key, value in {**defaults, **spec}.items() if value is not None},
    }


def a_double(name: str, *, low: str = "0.01", high: str = "0.1", **feasible_space: Any) -> dict[str, Any]:
    """Return a raw parameter of type double; further fields of its feasible space by their JSON name."""
    return {"name": name, "parameterType": "double", "feasibleSpace": {"min": low, "max": high, **feasible_space}}


def an_int(name: str, *, low: str = "1", high: str = "10", **feasible_space: Any) -> dict[str, Any]:
    """Return a raw parameter of type int; further fields of its feasible space by their JSON name."""
    return {"name": name, "parameterType": "int", "feasibleSpace": {"min": low, "max": high, **feasible_space}}


def a_choice(name: str, values: Iterable[str], *, parameter_type: str = "categorical") -> dict[str, Any]:
    """Return a raw parameter with a list of values: categorical, or discrete."""
    return {"name": name, "parameterType": parameter_type, "feasibleSpace": {"list": list(values)}}


def a_job(command: str = COMMAND, **job_spec: Any) -> dict[str, Any]:
    """Return a raw `batch/v1` Job that runs shell text in a container named `training`.

    Args:
        command: Shell text, run with `sh -c`.
        job_spec: Further fields of the Job's `spec` by their JSON name (`backoffLimit=0`).
    """
    container = {"name": "training", "image": "busybox", "command": ["sh", "-c", command]}
    pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod, **job_spec}}


def a_template(command: str = COMMAND, parameters: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a raw trial template around `a_job`.

    Args:
        command: Shell text of the trial.
        parameters: Placeholder name to reference; `learningRate` to `lr` when not given.
        fields: Further fields of the template by their JSON name (`retain=True`); None removes a field.
    """
    references = {"learningRate": "lr"} if parameters is None else parameters
    defaults = {
        "primaryContainerName": "training",
        "trialParameters": [{"name": name, "reference": reference} for name, reference in references.items()],
        "trialSpec": a_job(command),
    }
    return {key: value for key, value in {**defaults, **fields}.items() if value is not None}


def load_experiment(text: str | bytes, source: str, default_namespace: str) -> Submission:
    """Read a file with one Experiment, as a gate does before it checks it."""
    return experiment_of(load_documents(text, source), source, default_namespace)
