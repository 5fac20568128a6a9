"""The warm process of `katib.tune(..., preload=...)`: `python -m katib.sdk.warm PAYLOAD PIPES [MODULE ...]`.

It imports the modules and the function before trials arrive, and forks a process for each.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from katib.sdk.asking import StopTrial
from katib.sdk.forking import CallOutcome, ForkedSlot, end_with_children, fork_slot
from katib.sdk.payload import Payload
from katib.sdk.trial import called, lacking, lines_of
from katib.sdk.user_main import as_main

_END_SECONDS = 10.0


def warm_slots(file: Path, modules: Sequence[str], count: int) -> list[ForkedSlot]:
    """Start a warm process and return its slots; it ends with the last of them.

    Args:
        file: The file of the payload.
        modules: Modules to import.
        count: Number of slots.
    """
    pipes = [Pipe() for _ in range(count)]
    numbers = [theirs.fileno() for _, theirs in pipes]
    command = [sys.executable, "-m", "katib.sdk.warm", str(file), ",".join(map(str, numbers)), *modules]
    process = subprocess.Popen(  # noqa: S603 - this Python
        command, pass_fds=numbers, stdin=subprocess.DEVNULL, start_new_session=True
    )
    end = partial(_end, process, threading.Lock())
    for _, theirs in pipes:
        theirs.close()
    return [ForkedSlot(ours, end) for ours, _ in pipes]


def _end(process: subprocess.Popen[bytes], lock: threading.Lock) -> None:
    with lock:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def evaluated(payload: Payload, parameters: Mapping[str, Any]) -> CallOutcome:
    """Return the outcome of the function with the parameters of a trial."""
    try:
        metrics = called(payload, {**payload.constants, **parameters})
        return CallOutcome({}, lacks) if (lacks := lacking(payload, metrics)) else CallOutcome(metrics)
    except StopTrial:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the function raises fails its trial
        sys.stderr.write(lines_of(error))
        return CallOutcome({}, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)


def main(argv: Sequence[str]) -> None:
    """Serve jobs at the pipes until they are closed."""
    file, numbers, *modules = argv
    for module in modules:
        import_module(module)
    run = partial(evaluated, as_main(Path(file)))
    pipes = [Connection(int(number)) for number in numbers.split(",")]
    signal.signal(signal.SIGTERM, end_with_children)
    slots = [fork_slot(pipe, [other for other in pipes if other is not pipe], run) for pipe in pipes]
    for pipe in pipes:
        pipe.close()
    for slot in slots:
        slot.join()


if __name__ == "__main__":
    from katib.sdk.warm import main  # as in `katib.sdk.trial`

    main(sys.argv[1:])
