"""What a program does with Katib's official SDK on one machine, as a process of its own, from a kubeconfig.

Writes what the SDK answered as JSON. `fit` of `tests.support.official_sdk` says what newer packages need.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from kubeflow import katib

from tests.support.official_sdk import an_experiment, fit

COMMAND = ["sh", "-c", "echo begun; sleep 1.5; echo loss=${trialParameters.lr}"]
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "python:3.11-slim", "command": COMMAND}]}
JOB = {"trial_spec": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": POD}}}}


def logs_of(client: katib.KatibClient, experiment: str) -> list[str]:
    """Return the output of the first trial, followed while it runs."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for trial in client.list_trials(experiment):
            try:
                return list(client.get_job_logs(experiment, trial.metadata.name, follow=True))
            except RuntimeError:  # it has no pod yet
                time.sleep(0.1)
    return []


def run(client: katib.KatibClient) -> dict[str, Any]:
    """Run an experiment, read all about it, continue with a larger budget, and delete it."""
    budget = {"max_trial_count": 2, "parallel_trial_count": 2}
    client.create_experiment(an_experiment("sdk", JOB, resume_policy="LongRunning", **budget))
    lines = logs_of(client, "sdk")
    client.wait_for_experiment_condition("sdk", timeout=60, polling_interval=1)
    best = client.get_optimal_hyperparameters("sdk")
    told: dict[str, Any] = {
        "lines": [line.partition("=")[0] for line in lines],
        "created": client.is_experiment_created("sdk"),
        "succeeded": client.is_experiment_succeeded("sdk"),
        "conditions": [condition.type for condition in client.get_experiment_conditions("sdk")],
        "experiments": [found.metadata.name for found in client.list_experiments()],
        "trials": sorted(found.metadata.name for found in client.list_trials("sdk")),
        "details": sorted(found["name"] for found in client.get_success_trial_details("sdk")),
        "suggested": client.get_suggestion("sdk").status.suggestion_count,
        "best": best.best_trial_name,
        "state": client.get_trial(best.best_trial_name).status.conditions[-1].type,
    }
    client.edit_experiment_budget("sdk", max_trial_count=3)
    deadline = time.monotonic() + 60
    while (resumed := client.get_experiment("sdk")).status.trials_succeeded != 3 and time.monotonic() < deadline:
        time.sleep(0.2)
    told["resumed"] = resumed.status.trials_succeeded
    client.delete_experiment("sdk")
    return told


def tune(client: katib.KatibClient) -> list[int]:
    """Tune a function, which this machine's Python runs, and return its best value."""

    def objective(parameters: dict[str, str]) -> None:
        print(f"result={int(parameters['a']) ** 2}")  # noqa: T201 - where its metric is read

    client.tune(
        name="tuned",
        objective=objective,
        parameters={"a": katib.search.int(2, 3)},
        objective_metric_name="result",
        algorithm_name="grid",
        parallel_trial_count=2,
        max_trial_count=2,
    )
    client.wait_for_experiment_condition("tuned", timeout=60, polling_interval=1)
    found = client.get_optimal_hyperparameters("tuned").observation.metrics[0]
    client.delete_experiment("tuned")
    deadline = time.monotonic() + 60
    while (left := client.list_experiments()) and time.monotonic() < deadline:
        time.sleep(0.1)  # its finalizer goes in a moment
    return [int(found.max), len(left)]


def main() -> None:
    """Do it all."""
    client = katib.KatibClient(config_file=sys.argv[1])
    fit(client)
    sys.stdout.write(json.dumps({**run(client), "tuned": tune(client)}) + "\n")


if __name__ == "__main__":
    main()
