"""Cost of reading an experiment of many trials, and of keeping it in memory, against the bare query on the same file.

    python -m benchmarks.reading [--trials 30000] [--port 18765]

- `five best`: the whole command `katib trials --sort objective --limit 5`, of a data directory and of a server, beside
  `sqlite3` in a separate process that runs the same query, and `katib version`, which is the start of Python.
- `all as JSON`: `katib trials -o json`, with the peak memory of the command.
- `memory`: memory of a server with the experiment, above that with one trial.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.many_trials import fill
from benchmarks.support import KATIB, ROOT_ENVIRONMENT, memory_mb, options, processor_seconds, wait_with_memory
from katib.places.machine.layout import Layout

BEST = ["trials", "many", "--sort", "objective", "--limit", "5"]
BARE = """
import sqlite3, sys
query = "SELECT body FROM object_facts JOIN objects ON id = object_id WHERE scope = ? ORDER BY cost, object_id LIMIT 5"
print(sqlite3.connect(sys.argv[1]).execute(query, ("default/many",)).fetchall())
"""
TARGET_SECONDS = {30_000: 0.5, 100_000: 1.0}
TARGET_KB, TARGET_MB = 2.0, 200.0
SETTLE_SECONDS = 20.0


def seconds(command: list[str], runs: int = 3) -> tuple[float, float]:
    """Return the best of some runs of a command in seconds, and its peak memory in MB."""
    figures = []
    for _ in range(runs):
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ROOT_ENVIRONMENT)
        code, peak = wait_with_memory(process)
        assert code == 0, f"{command} ended with {code}"
        figures.append((time.perf_counter() - began, peak))
    return min(figures)


@contextmanager
def server(directory: Path, port: int) -> Iterator[float]:
    """Serve a directory; yield the server's memory in MB once it is idle."""
    command = [*KATIB, "serve", "--data-dir", str(directory), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ROOT_ENVIRONMENT)
    try:
        used = -1.0
        while (now := processor_seconds(process.pid)) - used > SETTLE_SECONDS / 100:
            used = now
            time.sleep(SETTLE_SECONDS / 4)
            assert process.poll() is None, "the server has ended"
        yield memory_mb(process.pid)
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    arguments = options(__doc__, trials=30_000, port=18765)
    count = arguments.trials
    with tempfile.TemporaryDirectory() as root:
        one, many = Path(root) / "one", Path(root) / "many"
        fill(one, 1, is_taken_up=True)
        fill(many, count, is_taken_up=True)
        offline = ["--data-dir", str(many)]
        bare, _ = seconds([sys.executable, "-c", BARE, str(Layout(many).database)])
        version, _ = seconds([*KATIB, "version"])
        best, _ = seconds([*KATIB, *BEST, *offline])
        single, _ = seconds([*KATIB, *BEST, "--data-dir", str(one)])
        print(f"five best of {count}: {best:.2f} s, of one trial {single:.2f} s, sqlite3 {bare:.2f} s, "
              f"ratio {best / bare:.1f}, `katib version` {version:.2f} s")  # fmt: skip
        whole, peak = seconds([*KATIB, "trials", "many", "-o", "json", *offline], runs=1)
        print(f"all as JSON: {whole:.1f} s, {count / whole:.0f} trials a second, {peak:.0f} MB")
        with server(one, arguments.port) as least:
            pass
        with server(many, arguments.port) as held:
            online = ["--server", f"http://127.0.0.1:{arguments.port}"]
            served, _ = seconds([*KATIB, *BEST, *online])
            whole, peak = seconds([*KATIB, "trials", "many", "-o", "json", *online], runs=1)
        each = (held - least) * 1024 / count
        print(f"of a server: five best {served:.2f} s; all as JSON {whole:.1f} s, {peak:.0f} MB")
        print(f"memory: {held:.0f} MB, with one trial {least:.0f} MB, {each:.1f} KB a trial")
    limit = TARGET_SECONDS.get(count, TARGET_SECONDS[100_000])
    return int(max(best, served) > limit or each > TARGET_KB or (count <= 30_000 and held > TARGET_MB))


if __name__ == "__main__":
    sys.exit(main())
