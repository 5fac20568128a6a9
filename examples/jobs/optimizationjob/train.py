"""Evaluates a function, and posts its value as the status of a TrainJob; without a server to post to, prints it."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from datetime import UTC, datetime
from pathlib import Path


def post(progress: int, loss: float) -> None:
    """Say how far the training is, as Kubeflow Trainer takes it."""
    url = os.environ.get("KUBEFLOW_TRAINER_SERVER_URL")
    if url is None:
        print(f"loss={loss}", flush=True)
        return
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metrics = [{"name": "loss", "value": str(loss)}]
    status = {"progressPercentage": progress, "lastUpdatedTime": now, "metrics": metrics}
    token = Path(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read_text().strip()
    request = urllib.request.Request(  # noqa: S310 - the address is the trainer's
        url,
        data=json.dumps({"trainerStatus": status}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        method="POST",
    )
    trusted = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
    urllib.request.urlopen(request, timeout=20, context=trusted).close()  # noqa: S310


x, kernel = float(os.environ["KUBEFLOW_TRAINER_OPT_X"]), os.environ["KUBEFLOW_TRAINER_OPT_KERNEL"]
for epoch in range(1, 5):
    rest = 1 / epoch
    post(25 * epoch, (abs(x - 1) if kernel == "linear" else (x - 1) ** 2) + rest)
