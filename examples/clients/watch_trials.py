"""Create an experiment with the Python client of Kubernetes, and print its trials as they end.

Start `katib serve` first. The package `kubernetes` has to be installed.

    eval "$(katib kubeconfig)"
    python examples/clients/watch_trials.py
"""

from __future__ import annotations

from pathlib import Path

import yaml
from kubernetes import client, config, watch

KIND = ("kubeflow.org", "v1beta1", "default")

config.load_kube_config()  # the file that KUBECONFIG names
api = client.CustomObjectsApi()
experiment = yaml.safe_load(Path(__file__).with_name("experiment.yaml").read_text())
api.create_namespaced_custom_object(*KIND, "experiments", experiment)
left = experiment["spec"]["maxTrialCount"]
selector = f"katib.kubeflow.org/experiment={experiment['metadata']['name']}"
for event in watch.Watch().stream(api.list_namespaced_custom_object, *KIND, "trials", label_selector=selector):
    trial = event["object"]
    metrics = trial.get("status", {}).get("observation", {}).get("metrics", [])
    if metrics and "completionTime" in trial["status"]:
        print(trial["metadata"]["name"], metrics[0]["name"], metrics[0]["latest"])
        left -= 1
    if not left:
        break
api.delete_namespaced_custom_object(*KIND, "experiments", experiment["metadata"]["name"])
