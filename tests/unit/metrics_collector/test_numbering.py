from __future__ import annotations

from collections.abc import Sequence

import pytest

from katib.api.metrics import BatchId, MetricLog
from katib.errors import UnavailableError
from metrics_collector.numbering import NumberedLog
from tests.support.observations import MemoryObservationLog, reading


class Silent(MemoryObservationLog):
    """Stores, and does not answer while it is silent."""

    silent = False

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        super().report(trial_name, logs, batch)
        if self.silent:
            raise UnavailableError("no answer")


def test_what_is_sent_again_is_stored_once() -> None:
    log = Silent()
    numbered, another = NumberedLog(log), NumberedLog(log)
    batch = [reading(str(number), second=number) for number in range(4)]
    log.silent = True
    for _ in range(2):
        with pytest.raises(UnavailableError):
            numbered.report("a", batch[:2])
    log.silent = False
    numbered.report("a", batch[:3])
    numbered.report("b", batch[:1])
    numbered.report("a", batch[3:])
    another.report("a", [reading("other", second=9)])

    assert [entry.value for entry in log.read("a")] == ["0", "1", "2", "3", "other"]
    assert [entry.value for entry in log.read("b")] == ["0"]
