"""Speed of reading TensorBoard's event files, against TensorBoard's own loaders, and the cost of an idle directory.

    python -m benchmarks.metrics_tf_events [--events 1000000] [--rival-python PYTHON]

Writes an event file with that many scalars of four tags, in the old form and in that of TensorFlow 2, and reads each
for
all four tags:

- `ours`: from bytes to readings, with checksums verified; also with the table that is used without google-crc32c;
- `EventFileLoader`, `EventAccumulator`: those of TensorBoard, in a separate process. One yields events, the other
  stores the scalars of each tag. If TensorFlow is installed they use its reader, which is written in C++.

The rival runs in PYTHON, an interpreter with tensorboard (and perhaps TensorFlow); otherwise its row is marked as
missing. It reads an eighth of the events, for it takes minutes. All figures are processor time. The target is a tenth
of that of EventFileLoader as installed by `pip install tensorboard`.

Then a hundred files at rest are polled five times a second, as on one machine, and once, as in a pod. The limit is half
a percent of a core.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from metrics_collector.parsers import records
from metrics_collector.parsers.records import checksum_function, crc32c
from metrics_collector.parsers.tags import TagRules
from metrics_collector.parsers.tf_events import EventParser
from metrics_collector.sources.event_directory import EventDirectory
from metrics_collector.sources.file_tail import CHUNK_BYTES
from tests.support.event_records import VERSION, event, field, number_field, record, simple_value, tensor_value

TARGET = 10
SHARE_FOR_RIVAL = 8
NAMES = ("train/loss", "train/accuracy", "val/loss", "val/accuracy")
FILE_NAME = "events.out.tfevents.1700000000.host"
IDLE_FILES = 100
IDLE_LIMIT_PERCENT = 0.5

RIVAL = """
import sys, time
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.compat import tf
except ImportError:
    sys.exit(3)
with_tensorflow = hasattr(tf, "io") and hasattr(tf, "constant")
for _ in EventFileLoader(sys.argv[1]).Load():
    break
start = time.process_time()
events = sum(1 for _ in EventFileLoader(sys.argv[1]).Load())
loader = time.process_time() - start
start = time.process_time()
accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
print(with_tensorflow, events, loader, time.process_time() - start)
"""


def old_form(tag: str, value: float) -> bytes:
    return simple_value(tag, value)


def tensor_form(tag: str, value: float) -> bytes:
    """Return a value as tf.summary.scalar writes it."""
    content = simple_value("", value)[-4:]
    plugin = field(9, field(1, field(1, b"scalars")))
    return tensor_value(tag, number_field(1, 1), field(2, b""), field(4, content)) + plugin


def write_events(path: Path, count: int, form: Callable[[str, float], bytes]) -> None:
    """Write an event file with that many scalars; deterministic in the arguments."""
    rng = random.Random(20240304)
    with path.open("wb") as file:
        file.write(VERSION)
        for number in range(count):
            value = form(NAMES[number % len(NAMES)], rng.random())
            file.write(record(event(value, step=number // len(NAMES), wall_time=1.7e9 + number / 100)))


def read(path: Path) -> int:
    parser = EventParser(TagRules(NAMES))
    with path.open("rb", buffering=0) as file:
        found = sum(len(parser.feed(data)) for data in iter(lambda: file.read(CHUNK_BYTES), b""))
    return found + len(parser.finish())


def measured(path: Path, count: int) -> float:
    """Return microseconds for each event, the best of three."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        assert read(path) == count
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def rival(python: str, path: Path) -> tuple[str, float, float] | None:
    """Return TensorBoard's reader, and microseconds per event of its two loaders; None without it."""
    done = subprocess.run([python, "-c", RIVAL, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    with_tensorflow, events, loader, accumulator = done.stdout.split()[-4:]
    reader = "TensorFlow's reader" if with_tensorflow == "True" else "its own reader"
    return reader, float(loader) / int(events) * 1e6, float(accumulator) / int(events) * 1e6


def report_speed(directory: Path, count: int, pythons: Iterable[str]) -> None:
    for title, form in {"old form": old_form, "tensors": tensor_form}.items():
        path = directory / title.replace(" ", "-") / FILE_NAME
        path.parent.mkdir()
        write_events(path, count, form)
        ours = measured(path, count)
        print(f"{title}, {count} events: {ours:.2f} us each, {1 / ours:.2f} million a second")
        short = directory / f"short-{path.parent.name}" / FILE_NAME
        short.parent.mkdir()
        write_events(short, count // SHARE_FOR_RIVAL, form)
        for python in pythons:
            report_rival(rival(python, short), ours)


def report_rival(found: tuple[str, float, float] | None, ours: float) -> None:
    if found is None:
        print("  rival not installed")
        return
    reader, loader, accumulator = found
    print(f"  EventFileLoader with {reader:<20} {loader:6.1f} us each, {loader / ours:5.1f} times (target {TARGET})")
    print(f"  EventAccumulator with {reader:<19} {accumulator:6.1f} us each, {accumulator / ours:5.1f} times")


def report_table(directory: Path, count: int) -> None:
    """Measure without google-crc32c."""
    path = directory / "table" / FILE_NAME
    path.parent.mkdir()
    write_events(path, count, old_form)
    fast = checksum_function
    records.checksum_function = lambda: crc32c  # type: ignore[assignment]  # what is used when it is not installed
    print(f"old form without google-crc32c: {measured(path, count):.2f} us each")
    records.checksum_function = fast


def report_idle(directory: Path) -> None:
    root = directory / "idle"
    for number in range(IDLE_FILES):
        path = root / f"run{number % 10}" / f"{FILE_NAME}.{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_events(path, 10, old_form)
    source = EventDirectory(root, NAMES)
    for _ in source.poll():
        pass
    for polls in (5, 1):
        start, processor = time.monotonic(), time.process_time()
        while time.monotonic() < start + 10:
            for _ in source.poll():
                pass
            time.sleep(1 / polls)
        share = (time.process_time() - processor) / (time.monotonic() - start)
        print(
            f"{IDLE_FILES} files at rest, {polls} polls a second: {share:.2%} of a core (limit {IDLE_LIMIT_PERCENT} %)"
        )
    source.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rival-python", action="append", help="an interpreter that has tensorboard; may be repeated")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report_speed(Path(directory), arguments.events, arguments.rival_python or [sys.executable])
        report_table(Path(directory), arguments.events // SHARE_FOR_RIVAL)
        report_idle(Path(directory))


if __name__ == "__main__":
    main()
