"""The heap of a page that stays open on a live experiment.

    python -m benchmarks.page_heap [--minutes 60] [--seconds 20]

An experiment without end runs two trials at a time, each of so many seconds with a reading per second, and a browser
shows its overview. The used heap is read after a forced collection, after a minute and twelve times more. Printed is
each figure, and the median of the last three over that of the first three.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.support import KATIB, ROOT_ENVIRONMENT, experiment, options
from benchmarks.ui import serve
from tests.support.browser import open_browser

LOOKS = 12
FLAT = 1.1


def main() -> None:
    chosen = options(__doc__, minutes=60.0, seconds=20)
    heaps, trials = [], []
    with (
        tempfile.TemporaryDirectory() as directory,
        serve(Path(directory) / "data") as (url, _),
        open_browser() as browser,
    ):
        report = f"for i in $(seq {chosen.seconds}); do echo step=$i loss=0.$((1000 - i)); sleep 1; done"
        path = experiment(Path(directory), report, trials=100_000, parallel=2)
        subprocess.run([*KATIB, "apply", str(path), "--server", url], check=True, env=ROOT_ENVIRONMENT)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{url}/katib/experiments/default/bench")
        session = page.context.new_cdp_session(page)
        time.sleep(60)
        for look in range(LOOKS + 1):
            time.sleep(chosen.minutes * 60 / LOOKS if look else 0)
            session.send("HeapProfiler.collectGarbage")
            heaps.append(session.send("Runtime.getHeapUsage")["usedSize"] / 1e6)
            trials.append(page.locator("tr[data-trial]").count())
            print(f"after {look * chosen.minutes / LOOKS:4.0f} min  {heaps[-1]:6.2f} MB, {trials[-1]} rows", flush=True)
    growth = statistics.median(heaps[-3:]) / statistics.median(heaps[:3])
    print(f"growth {growth:.2f} (target: at most {FLAT})")


if __name__ == "__main__":
    main()
