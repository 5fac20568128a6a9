"""Cost of a call of `katib.report` for the training program, against a bare `print` of the same line.

Both write to a pipe with a reader, as a trial does. Run it with `python -m benchmarks.metrics_push`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from katib.wire.rpc.db_manager import serve_db_manager
from katib.wire.rpc.log_guard import LogGuard, MemoryAccessList
from katib.wire.rpc.tokens import TOKEN_VARIABLE, CallerRole, TokenClaims, TokenSigner

LIMIT_MICROSECONDS = 50.0
CALLS = 20_000

_PROGRAM = """
import json, sys, time
import katib
calls = int(sys.argv[2])
def measured(call):
    took = []
    for step in range(calls):
        value = 1 / (step + 1)
        began = time.perf_counter_ns()
        call(value, step)
        took.append(time.perf_counter_ns() - began)
    took.sort()
    return [took[calls // 2] / 1000, took[calls * 99 // 100] / 1000]
if sys.argv[1] == "print":
    found = measured(lambda value, step: print(f"katib-step={step} loss={value} accuracy={1 - value}", flush=True))
else:
    katib.report(loss=1, accuracy=0)  # what sends is started by the first one
    found = measured(lambda value, step: katib.report(loss=value, accuracy=1 - value, step=step))
print(json.dumps(found), file=sys.stderr)
"""


class _Discarded:
    """A log that accepts everything at once."""

    def __init__(self) -> None:
        self.count_all = 0

    def report(self, _trial_name: str, logs: list[object], _batch: object = None) -> None:
        self.count_all += len(logs)


def measure(kind: str, calls: int, environment: dict[str, str]) -> tuple[float, float]:
    """Return the median and the 99th percentile of the time of a call, in microseconds."""
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, kind, str(calls)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, errors = program.communicate(timeout=300)
    median, most = json.loads(errors.splitlines()[-1])
    return median, most


def main() -> None:
    log, tokens = _Discarded(), TokenSigner([b"k" * 32])
    guard = LogGuard(tokens, MemoryAccessList(), trusts_loopback=False)
    server = serve_db_manager(log, "127.0.0.1:0", guard=guard)  # type: ignore[arg-type]  # reports are all it takes
    pushes = {
        "KATIB_TRIAL_NAME": "bench",
        "KATIB_DB_MANAGER_ADDRESS": server.address,
        TOKEN_VARIABLE: tokens.token_of(TokenClaims(CallerRole.TRIAL, "", "bench")),
    }
    printed = measure("print", CALLS, {})
    reported = measure("report", CALLS, {"KATIB_DB_MANAGER_ADDRESS": ""})
    pushed = measure("report", CALLS, pushes)
    server.stop(0)
    print(f"two metrics with a step, {CALLS:,} calls: median and 99 % in microseconds; limit {LIMIT_MICROSECONDS:g}")
    for name, (median, most) in {
        "print of the line": printed,
        "katib.report, printing": reported,
        "katib.report, pushing": pushed,
    }.items():
        print(f"{name:24} {median:8.1f} {most:8.1f}   {median / printed[0]:5.2f} of print")
    print(f"delivered: {log.count_all:,} of {2 * CALLS + 2:,} readings")


if __name__ == "__main__":
    main()
