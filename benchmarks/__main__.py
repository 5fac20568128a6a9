"""Run every benchmark, one after the other: `python -m benchmarks`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

METRICS = sorted(Path(__file__).parent.glob("metrics_*.py"))
"""Costs of metrics from the program to queries, one row each."""

BENCHMARKS = (
    ("start-up", ["benchmarks.startup"]),
    ("overhead of a trial", ["benchmarks.overhead"]),
    ("ten thousand trials", ["benchmarks.overhead", "--trials", "10000"]),
    ("calls and conversions of a trial", ["benchmarks.flow"]),
    ("tpe with a thousand trials", ["benchmarks.latency", "--algorithms", "tpe,multivariate-tpe", "--trials", "1000"]),
    ("ask and tell", ["benchmarks.ask_tell"]),
    ("trials of a warm process", ["benchmarks.warm_process"]),
    ("work of hyperband and bohb", ["benchmarks.halving"]),
    ("epochs of searches with a resource", ["benchmarks.multi_fidelity", "--problems", "hartmann*", "--most", "300"]),
    ("probabilities of katib confirm", ["benchmarks.confirm", "--algorithm", "random", "--seeds", "3"]),
    ("means of repeated runs", ["benchmarks.repeats", "--algorithm", "random", "--seeds", "3"]),
    ("metrics collector", ["benchmarks.collector"]),
    *((path.stem.replace("_", " "), [f"benchmarks.{path.stem}"]) for path in METRICS),
    ("launcher of containers", ["benchmarks.launcher"]),
    ("reading a long log", ["benchmarks.log_reading"]),
    ("object store", ["benchmarks.object_store"]),
    ("reading thirty thousand trials", ["benchmarks.reading"]),
    ("the Kubernetes API", ["benchmarks.kubernetes_api"]),
    ("starting processes", ["benchmarks.spawn"]),
    ("local jobs", ["benchmarks.local_jobs"]),
    ("jobs of many replicas", ["benchmarks.training_jobs"]),
    ("containers", ["benchmarks.containers"]),
)


def main() -> int:
    failed = []
    for title, arguments in BENCHMARKS:
        print(f"\n== {title}: python -m {' '.join(arguments)}", flush=True)
        if subprocess.run([sys.executable, "-m", *arguments], check=False).returncode:
            failed.append(title)
    if failed:
        print(f"\nended with an error: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
