"""The Helm chart, and the values that give each of the installs for kustomize."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

CHART = Path(__file__).resolve().parents[2] / "manifests" / "chart"
POSTGRES = {"database": "postgres", "postgres": {"password": "katib"}}
INSTALLS: dict[str, Json] = {
    "standalone": {},
    "postgres": POSTGRES,
    "mysql": {"database": "mysql", "mysql": {"password": "katib"}},
    "external-db": {"database": "external", "external": {"existingSecret": "katib-db-secrets"}},
    "cert-manager": {**POSTGRES, "certificates": "cert-manager"},
    "with-kubeflow": {**POSTGRES, "certificates": "cert-manager", "server": {"access": "kubeflow"}},
}

needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is missing")


def helm(
    command: str, *options: str, values: Json | None = None, chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    """Run a command of Helm for the release `katib` in the namespace `kubeflow`.

    Args:
        command: `template`, `install`, `upgrade`, `test` or `uninstall`.
        options: Its options; later ones win.
        values: Those of the chart; None for commands that take no chart.
        chart: Its folder.
    """
    given = [] if values is None else [str(chart), "--values=-"]
    words = ["helm", command, "katib", *given, "--namespace=kubeflow", *options]
    return subprocess.run(words, input=json.dumps(values), capture_output=True, text=True, check=False)
