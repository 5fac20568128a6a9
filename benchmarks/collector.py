"""Speed of the collector on a large log, and its memory.

    python -m benchmarks.collector [--size-mb 1000] [--metric-lines 0.01] [--file PATH]

Writes a log of that size from a seed (or uses the file), with metrics in one of a hundred lines, and reads it:

- `read`: the file alone, as an upper limit;
- `collector`: read and collected, with the default filter, a rule and a stamp for each reading;
- `loop`: `for line in file` with the same pattern in `re`, the simplest implementation.

Each runs in a separate process to measure its own peak memory. The target is 100 MB/s on one core.
"""

from __future__ import annotations

import multiprocessing
import random
import re
import resource
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.support import options
from katib.model.types import EarlyStoppingRule
from metrics_collector.collector import Collector
from metrics_collector.parsers import TextParser
from metrics_collector.sources import ProgramOutput
from metrics_collector.sources.file_tail import CHUNK_BYTES, FileTail

TARGET_MB_PER_SECOND = 100
MB = 1_000_000
NAMES = ("loss", "accuracy")
_WORDS = [b"step", b"epoch", b"batch", b"loader", b"INFO", b"saved", b"checkpoint", b"lr=0.001", b"gpu:0", b"12.5it/s"]


def write_log(path: Path, size: int, metric_lines: float) -> None:
    """Write a log of about the given size; deterministic in the arguments."""
    rng = random.Random(20240304)
    block: list[bytes] = []
    for number in range(50_000):
        text = b" ".join(rng.choices(_WORDS, k=rng.randint(6, 18)))
        if rng.random() < metric_lines:
            text = b"epoch %d: loss=%.6f accuracy=%.4f" % (number, rng.random(), rng.random())
        block.append(b"2024-03-04T17:55:08Z " + text + b"\n")
    whole = b"".join(block)
    with path.open("wb") as file:
        for _ in range(max(1, size // len(whole))):
            file.write(whole)


def read(path: Path) -> int:
    with path.open("rb", buffering=0) as file:
        return sum(1 for _ in iter(lambda: file.read(CHUNK_BYTES), b""))


def collect(path: Path) -> int:
    rules = [EarlyStoppingRule(name="accuracy", value="-1", comparison="less", start_step=4)]
    output = ProgramOutput(TextParser(NAMES))
    collector = Collector("loss", ["accuracy"], output, rules, "minimize", lambda: datetime.now(UTC))
    tail = FileTail(path)
    count = sum(len(collector.take(output.feed(chunk))) for chunk in tail.poll())
    tail.close()
    return count


def loop(path: Path) -> int:
    pattern = re.compile(r"([\w|-]+)\s*=\s*([+-]?(?:(?:nan|inf)\b|\d*(?:\.\d+)?(?:[Ee][+-]?\d+)?))")
    count = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if any(name in line for name in NAMES):
                count += sum(match[1] in NAMES and match[2] != "" for match in pattern.finditer(line))
    return count


def measure(work: Callable[[Path], int], path: Path) -> tuple[int, float, float]:
    """Return the work's result, its seconds of processor time and its peak memory in MB, taken in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (work, path))


def _measured(work: Callable[[Path], int], path: Path) -> tuple[int, float, float]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    result = work(path)
    seconds = time.process_time() - start
    return result, seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def report(path: Path) -> None:
    size = path.stat().st_size / MB
    print(f"{size:.0f} MB, {read(path)} chunks of {CHUNK_BYTES >> 10} KiB; processor time of one process each")
    speeds: dict[str, float] = {}
    for name, work in {"read": read, "collector": collect, "loop": loop}.items():
        result, seconds, memory = measure(work, path)
        speeds[name] = size / seconds
        print(f"{name:<10} {speeds[name]:8.0f} MB/s  {memory:6.1f} MB more memory at the peak  {result} results")
    print(f"collector / loop   {speeds['collector'] / speeds['loop']:.1f} times as fast")
    print(f"collector / target {speeds['collector'] / TARGET_MB_PER_SECOND:.1f} ({TARGET_MB_PER_SECOND} MB/s)")


def main() -> None:
    arguments = options(__doc__, size_mb=1000, metric_lines=0.01, file="")
    if arguments.file:
        report(Path(arguments.file))
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "metrics.log"
        write_log(path, arguments.size_mb * MB, arguments.metric_lines)
        report(path)


if __name__ == "__main__":
    main()
