"""The metrics collector sidecar: `python -m metrics_collector` with the flags of Katib's file collector."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence

_requests: list[int] = []
_listeners: list[Callable[[], None]] = []


def main(arguments: Sequence[str]) -> int:
    """Run the sidecar and return its exit code: 2 when the command line cannot be followed.

    SIGTERM is taken from the very start: after a short program it comes while the other modules are still loading.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _note)
    from katib.errors import KatibError
    from metrics_collector.arguments import parse_arguments
    from metrics_collector.sidecar import Sidecar, leave_message
    from metrics_collector.surroundings import Surroundings

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="metrics-collector: %(message)s")
    # It says with each attempt what the connection says once.
    logging.getLogger("metrics_collector.reporter").setLevel(logging.ERROR)
    surroundings = Surroundings.of(os.environ)
    try:
        sidecar = Sidecar(parse_arguments(arguments), surroundings)
    except KatibError as error:
        leave_message(surroundings.termination_log, str(error))
        return 2
    _listeners.append(sidecar.terminate)
    if _requests:
        sidecar.terminate()
    return sidecar.run()


def _note(number: int, _frame: object) -> None:
    _requests.append(number)
    for listener in _listeners:
        listener()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
