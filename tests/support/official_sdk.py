"""What a program does with Katib's official SDK, run as a process of its own: `python -m tests.support.official_sdk`.

Writes what the SDK answered as JSON. The SDK was made for releases below 36 of the package `kubernetes`; with a newer
one its models are made to fit here, which users do by keeping to an older one.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from kubeflow import katib
from kubernetes.client import V1ManagedFieldsEntry, V1ObjectMeta, V1OwnerReference

SUCCEEDED = 'status.conditions.#(type=="Succeeded")#|#(status=="True")#'
STAND_IN: dict[str, Any] = {
    "trial_spec": {"apiVersion": "test.katib.dev/v1", "kind": "StandIn", "spec": {"lr": "${trialParameters.lr}"}},
    "success_condition": SUCCEEDED,
    "failure_condition": SUCCEEDED.replace("Succeeded", "Failed"),
}


def an_experiment(name: str, template: dict[str, Any], **spec: Any) -> katib.V1beta1Experiment:
    """Return an experiment out of the SDK's models; `template` are the fields of its trials' jobs."""
    return katib.V1beta1Experiment(
        api_version="kubeflow.org/v1beta1",
        kind="Experiment",
        metadata=V1ObjectMeta(name=name),
        spec=katib.V1beta1ExperimentSpec(
            objective=katib.V1beta1ObjectiveSpec(type="minimize", objective_metric_name="loss"),
            algorithm=katib.V1beta1AlgorithmSpec(algorithm_name="random"),
            parameters=[
                katib.V1beta1ParameterSpec(
                    name="lr", parameter_type="double", feasible_space=katib.V1beta1FeasibleSpace(min="0.01", max="0.1")
                )
            ],
            trial_template=katib.V1beta1TrialTemplate(
                primary_container_name="main",
                trial_parameters=[katib.V1beta1TrialParameterSpec(name="lr", reference="lr")],
                **template,
            ),
            **spec,
        ),
    )


def fit(client: katib.KatibClient) -> None:
    """Send plain values instead of models, and name types as the SDK reads them."""
    for model in (V1ObjectMeta, V1ManagedFieldsEntry, V1OwnerReference):
        for field, type_ in model.openapi_types.items():
            listed = re.sub(r"^List\[(.*)\]$", r"list[\1]", type_)
            model.openapi_types[field] = re.sub(r"^Dict\[str, (.*)\]$", r"dict(str, \1)", listed)
    serialize = client.api_client.sanitize_for_serialization

    def plain(send: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: send(*map(serialize, args), **{k: serialize(v) for k, v in kwargs.items()})

    client.custom_api.create_namespaced_custom_object = plain(client.custom_api.create_namespaced_custom_object)
    client.custom_api.patch_namespaced_custom_object = plain(client.custom_api.patch_namespaced_custom_object)


def run_and_resume(client: katib.KatibClient, db_manager: str) -> dict[str, Any]:
    """Run an experiment, read all about it, continue with a larger budget, and delete it."""
    budget = {"max_trial_count": 2, "parallel_trial_count": 1, "max_failed_trial_count": 1}
    client.create_experiment(an_experiment("sdk", STAND_IN, resume_policy="LongRunning", **budget))
    client.wait_for_experiment_condition("sdk", timeout=150, polling_interval=1)
    told: dict[str, Any] = {
        "created": client.is_experiment_created("sdk"),
        "succeeded": client.is_experiment_succeeded("sdk"),
        "failed": client.is_experiment_failed("sdk"),
        "running": client.is_experiment_running("sdk"),
        "experiments": [found.metadata.name for found in client.list_experiments()],
        "trials": sorted(found.metadata.name for found in client.list_trials("sdk")),
        "details": sorted(found["name"] for found in client.get_success_trial_details("sdk")),
        "suggested": client.get_suggestion("sdk").status.suggestion_count,
    }
    best = client.get_optimal_hyperparameters("sdk")
    told["best"] = [best.best_trial_name, best.observation.metrics[0].latest, best.parameter_assignments[0].name]
    told["state"] = client.get_trial(best.best_trial_name).status.conditions[-1].type
    readings = client.get_trial_metrics(best.best_trial_name, db_manager_address=db_manager)
    told["readings"] = [reading.metric.value for reading in readings]
    client.edit_experiment_budget("sdk", max_trial_count=3)
    deadline = time.monotonic() + 150  # jobs end at once, so that Restarting may be over before anybody looks
    while (resumed := client.get_experiment("sdk")).status.trials_succeeded != 3 and time.monotonic() < deadline:
        time.sleep(0.5)
    told["resumed"] = resumed.status.trials_succeeded
    client.delete_experiment("sdk")
    return told


def tune(client: katib.KatibClient) -> dict[str, Any]:
    """Tune a function, which no node runs, and return what is stored of it."""

    def objective(parameters: dict[str, str]) -> None:
        sys.stdout.write(f"result={float(parameters['a'])}")

    client.tune(
        name="tuned",
        objective=objective,
        parameters={"a": katib.search.int(10, 100), "b": katib.search.double(0.1, 0.2)},
        objective_metric_name="result",
        base_image="python:3.11-slim",
        max_trial_count=2,
        resources_per_trial={"cpu": "100m"},
    )
    spec = client.get_experiment("tuned").spec
    client.delete_experiment("tuned")
    return {
        "algorithm": spec.algorithm.algorithm_name,
        "collector": spec.metrics_collector_spec.collector.kind,
        "parameters": sorted(found.name for found in spec.parameters),
    }


def main() -> None:
    """Do it all."""
    kubeconfig, namespace, db_manager = sys.argv[1:]
    client = katib.KatibClient(config_file=kubeconfig, namespace=namespace)
    fit(client)
    told = run_and_resume(client, db_manager)
    sys.stdout.write(json.dumps({**told, "tuned": tune(client)}) + "\n")


if __name__ == "__main__":
    main()
