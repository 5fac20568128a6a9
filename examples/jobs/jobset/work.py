"""The three programs of a JobSet: one makes data, one watches, and two share the fitting of a line. No framework."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

SHARED = Path(os.environ["KATIB_TRIAL_DIR"]).parent
"""The directory of the trial, which its pods share on this machine; on a cluster a volume takes its place."""

EPOCHS = 40


def prepare() -> None:
    """Write noisy points of y = 3x - 1."""
    noise = random.Random(7)
    points = [(x, 3 * x - 1 + noise.gauss(0, 0.2)) for x in (noise.uniform(-1, 1) for _ in range(200))]
    (SHARED / "points.json").write_text(json.dumps(points))


def watch() -> None:
    """Say how many points there are, again and again: the JobSet ends it when the work is done."""
    while True:
        print(f"{len(json.loads((SHARED / 'points.json').read_text()))} points", flush=True)
        time.sleep(1)


def fit(share: int, lr: float, momentum: float) -> None:
    """Fit a line to every second point; the first of the two tells how well it goes."""
    points = json.loads((SHARED / "points.json").read_text())[share::2]
    slope = intercept = speed_of_slope = speed_of_intercept = 0.0
    for epoch in range(EPOCHS):
        errors = [(slope * x + intercept - y, x) for x, y in points]
        speed_of_slope = momentum * speed_of_slope - lr * sum(e * x for e, x in errors) / len(errors)
        speed_of_intercept = momentum * speed_of_intercept - lr * sum(e for e, _ in errors) / len(errors)
        slope, intercept = slope + speed_of_slope, intercept + speed_of_intercept
        if (epoch + 1) % 10 == 0:
            print(f"epoch={epoch + 1} loss={sum(e * e for e, _ in errors) / len(errors):.5f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare()
    elif sys.argv[1] == "watch":
        watch()
    else:
        fit(int(os.environ["JOB_COMPLETION_INDEX"]), float(sys.argv[2]), float(sys.argv[3]))
