"""Shared helpers of the benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

KATIB = [str(Path(sys.executable).parent / "katib")]

ROOT_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KATIB_")}


def experiment(directory: Path, command: str, *, trials: int, parallel: int) -> Path:
    """Write an experiment of random search over one double that runs a shell command; return its path."""
    container = {"name": "main", "image": "none", "command": ["sh", "-c", f"{command} # ${{trialParameters.x}}"]}
    document = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Experiment",
        "metadata": {"name": "bench"},
        "spec": {
            "objective": {"type": "minimize", "objectiveMetricName": "loss"},
            "algorithm": {"algorithmName": "random"},
            "maxTrialCount": trials,
            "parallelTrialCount": parallel,
            "parameters": [{"name": "x", "parameterType": "double", "feasibleSpace": {"min": "0", "max": "1"}}],
            "trialTemplate": {
                "primaryContainerName": "main",
                "trialParameters": [{"name": "x", "reference": "x"}],
                "trialSpec": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
                },
            },
        },
    }
    path = directory / "experiment.json"
    path.write_text(json.dumps(document))
    return path


def wait_with_memory(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait for a process; return its exit code and its peak memory in MB, without that of its children."""
    peak = 0.0
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            lines = status.read_text().splitlines()
        except OSError:
            break
        peak = max(peak, *(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
        time.sleep(0.1)
    return process.wait(), peak


def times_of(action: Callable[[], object], runs: int, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Return the seconds of each of some calls."""
    moments = [clock()]
    for _ in range(runs):
        action()
        moments.append(clock())
    return [end - start for start, end in pairwise(moments)]


def processor_seconds(pid: int) -> float:
    """Return the processor time of another process so far."""
    return time.clock_gettime(~pid << 3 | 2)  # its clock, as in clock_getcpuclockid(3)


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Return the memory of another process: the present one, or with `VmHWM` the peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
