"""Cost of the newest reading, the number of readings and the summary of a long log.

    python -m benchmarks.log_reading [--readings 1000000]

A SQLite file holds that many readings of one trial, of two metrics. Rivals: the bare SQL queries by the driver, without
SQLAlchemy, and reading the whole log, as a live table once did.
"""

from __future__ import annotations

import sqlite3
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.support import median_ms, options
from katib.engine.databases.sqlite import open_database
from katib.engine.observations import SqlObservationLog
from katib.model.metrics import MetricLog

RUNS = 20
NAMES = ("loss", "accuracy")
START = datetime(2024, 1, 1, tzinfo=UTC)
_NEWEST = "SELECT time, metric_name, value FROM observation_logs WHERE trial_name = 't' {} ORDER BY time DESC, id DESC"
_COUNT = "SELECT count(*) FROM observation_logs WHERE trial_name = 't' AND metric_name = 'loss'"


def main() -> None:
    count = options(__doc__, readings=1_000_000).readings
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "katib.db"
        with open_database(path) as database:
            log = SqlObservationLog(database)
            log.report(
                "t", [MetricLog(START + timedelta(seconds=i), NAMES[i % 2], str(i / count)) for i in range(count)]
            )
            bare = sqlite3.connect(path)
            one = _NEWEST.format("AND metric_name = 'loss'") + " LIMIT 1"
            rows = (
                ("newest of a metric", lambda: log.newest("t", limit=1, metric_name="loss"), one),
                ("newest of all metrics", lambda: log.newest("t", limit=1), None),
                ("newest 1,000 of a metric", lambda: log.newest("t", limit=1000, metric_name="loss"), one + "000"),
                ("number of a metric", lambda: log.count("t", metric_name="loss"), _COUNT),
                ("summary of a metric", lambda: log.summarize("t", ["loss"]), None),
            )
            for name, ours, statement in rows:
                took = median_ms(ours, RUNS)
                line = f"{name:<26}{took:10.2f} ms"
                if statement is not None:
                    rival = median_ms(lambda text=statement: bare.execute(text).fetchall(), RUNS)  # type: ignore[misc]
                    line += f", {took / rival:.1f} times the bare query ({rival:.3f} ms)"
                print(line)
            print(f"{'the whole log':<26}{median_ms(lambda: log.read('t'), 1):10.0f} ms, of {count:,} readings")
            bare.close()


if __name__ == "__main__":
    main()
