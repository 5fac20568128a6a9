"""A Prometheus endpoint of the program, scraped while it runs.

Scrapes run on their own thread, one after the other, so that a hanging endpoint delays nothing else. A program can only
be scraped while it runs: values that it sets in its last second may be lost, unless it keeps serving for a moment. When
its end is requested, it is scraped immediately, while it still serves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from katib.model.metrics import MetricLog
from metrics_collector.parsers.prometheus import PrometheusParser
from metrics_collector.sources.scraping import MetricsEndpoint, ScrapeError, ScrapeResponse, scrape
from metrics_collector.sources.source import MetricSource, ReadPosition, counted

SCRAPE_INTERVAL_SECONDS = 1.0
FIRST_INTERVAL_SECONDS = 0.2
"""Pause before the first answer: short programs end soon, and a refused connection costs little."""


class PrometheusEndpoint(MetricSource):
    """The source of kind PrometheusMetric. Its thread starts with the first poll.

    Args:
        endpoints: The endpoints; those after the first one are used only while that one is unreachable.
        interval_seconds: Pause between two scrapes.
    """

    def __init__(
        self,
        endpoints: list[MetricsEndpoint],
        names: list[str],
        *,
        scrape: Callable[[MetricsEndpoint], ScrapeResponse] = scrape,
        interval_seconds: float = SCRAPE_INTERVAL_SECONDS,
    ) -> None:
        self._endpoints = endpoints
        self._parser = PrometheusParser(names)
        self._scrape = scrape
        self._interval = interval_seconds
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._soon = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._runs = False
        self._settled: Callable[[], None] = lambda: None
        self._found: list[MetricLog] = []
        self._scrapes = 0
        self._error: ScrapeError | None = None
        self._began = time.time_ns()

    # --- as a source --------------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        """The reason why it does not answer; empty if it is unreachable after earlier answers: programs end."""
        error = self._error
        if error is None or (error.is_unreachable and self._scrapes):
            return ""
        return f"{self._endpoints[0]} {error}"

    @property
    def position(self) -> ReadPosition | None:
        """A new beginning for each collector: scraped values never come again."""
        return ReadPosition(0, self._began, 0, 0)

    def poll(self) -> Iterator[list[MetricLog]]:
        """Yield the readings since the last poll."""
        if self._thread is None:
            self._runs = True
            self._thread = threading.Thread(target=self._run, name="prometheus-scrapes", daemon=True)
            self._thread.start()
        with self._lock:
            found, self._found = self._found, []
        if found:
            yield found

    def hasten(self) -> None:
        """Scrape at once."""
        self._soon.set()

    def end(self) -> None:
        """Scrape once more, then never again."""
        self._ending.set()
        self._soon.set()

    @property
    def is_over(self) -> bool:
        """Whether the last scrape is done."""
        return self._ending.is_set() and (self._thread is None or not self._thread.is_alive())

    def finish(self) -> list[MetricLog]:
        """Return the rest, without waiting for a scrape in progress."""
        with self._lock:
            found, self._found = self._found, []
        return found

    def settle(self, then: Callable[[], None]) -> None:
        """Scrape no more, and call back when the scrape in progress has ended."""
        self.close()
        with self._lock:
            if self._runs:
                self._settled = then
                return
        then()

    def close(self) -> None:
        """Scrape no more."""
        self._closed = True
        self._ending.set()
        self._soon.set()

    # --- as evidence --------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._scrapes

    def seen(self) -> str:
        if not self._scrapes:
            return f"no answer from {' or '.join(map(str, self._endpoints))}"
        return f"{counted(self._scrapes, 'scrape')} of {self._endpoints[0]}"

    def hint(self, metric: str) -> str:
        """Return the part of the last scrape most similar to the metric."""
        return self._parser.hint(metric)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._soon.wait(self._look())
                self._soon.clear()
            if not self._closed:
                self._look()
        finally:
            with self._lock:
                self._runs = False
            self._settled()

    def _look(self) -> float:
        """Scrape once; return the pause before the next time."""
        try:
            answer = self._answer()
            readings = self._parser.read(answer.body, answer.content_type)
            with self._lock:
                self._found += readings
                self._scrapes += 1
            self._error = None
        except ScrapeError as error:
            self._error = error
        except ValueError as error:
            self._error = ScrapeError(f"does not answer in Prometheus' text format ({error})")
        return self._interval if self._scrapes else min(FIRST_INTERVAL_SECONDS, self._interval)

    def _answer(self) -> ScrapeResponse:
        first: ScrapeError | None = None
        for endpoint in self._endpoints:
            try:
                return self._scrape(endpoint)
            except ScrapeError as error:
                first = first or error
                if not error.is_unreachable:
                    break
        assert first is not None
        raise first
