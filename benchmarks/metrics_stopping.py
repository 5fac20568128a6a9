"""Delay from a hopeless reading to the end of the program, on one machine.

Programs print one value for which `threshold` stops them, with its time; they record the time of SIGTERM. Another value
comes first, since the first call of `katib.report` connects. Rows: a program that prints, and one that calls
`katib.report`. For comparison, the bare signal is measured from its call to the handler of such a program. The limit is
a tenth of a second.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support import KATIB, ROOT_ENVIRONMENT, experiment

TRIALS = 20
LIMIT_SECONDS = 0.1

PROGRAM = """
import pathlib, signal, sys, time
def told(*_):
    pathlib.Path({folder!r}, str(time.time_ns())).write_text(str(time.time() - said))
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
import katib
{first}
time.sleep(3)
said = time.time()
{report}
while True:
    time.sleep(0.01)
"""

WAYS = {
    "printed": ("StdOut", "print('loss={}', flush=True)"),
    "katib.report": ("Push", "katib.report(loss={})"),
}


def delays(directory: Path, collector: str, report: str) -> list[float]:
    """Return the seconds from the reading to the SIGTERM of each program."""
    folder = directory / "told"
    folder.mkdir(parents=True)
    program = directory / "program.py"
    program.write_text(PROGRAM.format(folder=str(folder), first=report.format(0.1), report=report.format(0.9)))
    threshold = {"algorithmName": "threshold", "algorithmSettings": [{"name": "bound", "value": "0.5"}]}
    spec = {"earlyStopping": threshold, "metricsCollectorSpec": {"collector": {"kind": collector}}}
    path = experiment(directory, f"exec {sys.executable} {program}", trials=TRIALS, parallel=2, **spec)
    run = [*KATIB, "run", str(path), "-q", "--data-dir", str(directory / "data")]
    subprocess.run(run, check=True, env=ROOT_ENVIRONMENT)
    return [float(file.read_text()) for file in folder.iterdir()]


def bare() -> list[float]:
    """Return the seconds from the call to the handler of each signal."""
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print(time.time(), flush=True), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.01)"
    )
    found = []
    for _ in range(TRIALS):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            sent = time.time()
            process.terminate()
            found.append(float(process.stdout.readline()) - sent)
    return found


def main() -> None:
    print(f"{'from reading to SIGTERM':<24} {'trials':>6} {'median':>9} {'slowest':>9} {'limit':>9}")
    _row("bare signal", bare())
    for way, (collector, report) in WAYS.items():
        with tempfile.TemporaryDirectory() as directory:
            _row(way, delays(Path(directory), collector, report))


def _row(name: str, found: list[float]) -> None:
    median, slowest = 1000 * statistics.median(found), 1000 * max(found)
    print(f"{name:<24} {len(found):>6} {median:>6.1f} ms {slowest:>6.1f} ms {1000 * LIMIT_SECONDS:>6.0f} ms")


if __name__ == "__main__":
    main()
