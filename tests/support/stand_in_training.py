"""Stands for the training programs in the images of Katib's examples: prints what each of them prints, at once.

It runs inside containers with no more than Debian's minimal Python, so it imports nothing of this project.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

EVENTS = "/opt/events"
"""An event file with `accuracy` that TensorFlow wrote; it is in the image."""


def options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what `--name=value` and `--name value` say."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, is_joined, value = word.partition("=")
        yield name.lstrip("-").replace("-", "_"), value if is_joined else after


def main() -> None:
    given = dict(options(sys.argv[1:]))
    rate = float(given.get("lr") or given.get("learning_rate") or 0.02)
    path = given.get("log_path", "")
    if path and not path.endswith((".log", ".json")):
        os.makedirs(f"{path}/test", exist_ok=True)  # noqa: PTH103  # neither pathlib nor shutil is in the image
        with open(EVENTS, "rb") as events, open(f"{path}/test/events.out.tfevents.1.here", "wb") as copy:  # noqa: PTH123
            copy.write(events.read())
        return
    with open(path, "a") if path else sys.stdout as file:  # noqa: PTH123  # as above
        for epoch in range(1, 5):
            loss = abs(rate - 0.03) + 0.2 / epoch
            accuracy = 1 - loss
            if path.endswith(".json"):
                file.write(f'{{"accuracy": "{accuracy:.4f}", "loss": "{loss:.4f}"}}\n')
            elif path:
                metrics = (("accuracy", accuracy), ("loss", loss))
                file.write(
                    ";".join(f"{{metricName: {name}, metricValue: {value:.4f}}}" for name, value in metrics) + "\n"
                )
            else:
                file.write(
                    f"epoch {epoch} accuracy={accuracy:.4f} loss={loss:.4f} Validation-Accuracy={accuracy:.4f}\n"
                )
                file.write(f"training auc : {accuracy / 2:.4f}  training binary_logloss : {loss:.4f}\n")
                file.write(f"valid_1 auc : {accuracy / 2:.4f}  valid_1 binary_logloss : {loss:.4f}\n")
        if not path:
            file.write("Best-Genotype=Genotype(normal=[[('max_pooling_3x3',0)]],normal_concat=range(2,3))\n")


main()
