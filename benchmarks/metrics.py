"""Metrics, from the program to the answers: every figure beside its rival or limit.

    python -m benchmarks.metrics

The rows stand in `metrics_*.py`, each of which also runs by itself; what a collector reads in a second is measured by
`benchmarks.collector`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run all rows, one after the other; the exit code says whether one ended with an error."""
    failed = []
    for path in sorted(Path(__file__).parent.glob("metrics_*.py")):
        module = f"benchmarks.{path.stem}"
        print(f"-- python -m {module}", flush=True)
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            failed.append(module)
    if failed:
        print(f"ended with an error: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
