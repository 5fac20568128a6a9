"""Engines at work in the test process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from katib.places.machine.engine import Engine
from katib.service.tuning.service import TuningService


@contextmanager
def working(directory: Path, config: Path | None = None) -> Iterator[TuningService]:
    """Run an engine in a data directory; yield what it offers."""
    with Engine(directory, config, own_process=False) as engine:
        engine.start()
        yield engine.service
