"""The metrics collector sidecar: `python -m metrics_collector` with the flags of Katib's file collector."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

_requests: list[float] = []
_listeners: list[Callable[[float], None]] = []


def main(arguments: Sequence[str]) -> int:
    """Run the sidecar and return its exit code: 2 for an invalid command line.

    SIGTERM is handled from the very start: after a short program it arrives while the other modules are still loading.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _note)
    gc.disable()  # imports create no garbage
    from katib.errors import KatibError
    from metrics_collector.arguments import parse_arguments
    from metrics_collector.pod_settings import PodSettings
    from metrics_collector.sidecar import Sidecar, leave_message

    gc.freeze()
    gc.enable()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="metrics-collector: %(message)s")
    # It logs with each attempt a message that the connection logs once.
    logging.getLogger("metrics_collector.reporter").setLevel(logging.ERROR)
    pod = PodSettings.of(os.environ)
    try:
        sidecar = Sidecar(parse_arguments(arguments), pod)
    except KatibError as error:
        leave_message(pod.termination_log, str(error))
        return 2
    _listeners.append(sidecar.terminate)
    if _requests:
        sidecar.terminate(_requests[0])
    code = sidecar.run()
    # The interpreter removes its handlers before it ends: a signal in between would replace the exit code.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return code


def _note(_number: int, _frame: object) -> None:
    now = time.monotonic()  # the grace period has started, however long the other imports take
    _requests.append(now)
    for listener in _listeners:
        listener(now)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
