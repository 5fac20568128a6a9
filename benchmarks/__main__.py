"""Run every benchmark, one after the other: `python -m benchmarks`."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    ("start-up", ["benchmarks.startup"]),
    ("overhead of a trial", ["benchmarks.overhead"]),
    ("ten thousand trials", ["benchmarks.overhead", "--trials", "10000"]),
    ("tpe with a thousand trials", ["benchmarks.suggestion_tpe"]),
    ("metrics collector", ["benchmarks.collector"]),
    ("object store", ["benchmarks.object_store"]),
    ("starting processes", ["benchmarks.spawn"]),
    ("local jobs", ["benchmarks.local_jobs"]),
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
