"""Short calls of many requests, one after the other on one thread.

Handing each call to a thread of its own takes longer than most of them, and their writes have to wait for each other
anyway: threads that wait for the writer and for the interpreter at once hold up everyone behind them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeGuard, TypeVar

from fastapi.concurrency import run_in_threadpool

from katib.service.tuning.asking import AskingService
from katib.service.tuning.service import TuningService

T = TypeVar("T")

_Call = tuple[Callable[[], Any], "asyncio.Future[Any]"]

_ANSWERED_AT_ONCE = 4
"""Of so many calls the results are handed back together: waking the event loop for each would cost as much again."""


def asks_later(service: TuningService) -> TypeGuard[AskingService]:
    """Return whether a service takes requests for trials without a thread that waits."""
    return hasattr(service, "ask_later")  # a check of the whole protocol takes as long as to find the route


class Turns:
    """Runs calls in the order in which they come. Thread-safe."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="turns")  # without a thread until used
        self._lock = threading.Lock()
        self._calls: list[_Call] = []
        self._is_busy = False

    async def run(self, service: TuningService, call: Callable[[], T]) -> T:
        """Return the result of a call; one that may have to wait for a network has a thread of its own."""
        if not asks_later(service) or not service.answers_at_once:
            return await run_in_threadpool(call)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._calls.append((call, future))
            begins, self._is_busy = not self._is_busy, True
        if begins:
            self._thread.submit(self._work)
        return await future

    def _work(self) -> None:
        while True:
            with self._lock:
                calls, self._calls = self._calls[:_ANSWERED_AT_ONCE], self._calls[_ANSWERED_AT_ONCE:]
                if not calls:
                    self._is_busy = False
                    return
            results = [(future, *_result_of(call)) for call, future in calls]
            for loop in {future.get_loop() for _, future in calls}:
                with suppress(RuntimeError):  # it was closed, and nobody awaits its results
                    loop.call_soon_threadsafe(_settle, [result for result in results if result[0].get_loop() is loop])


def _result_of(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - raised where the result is awaited
        return None, error


def _settle(results: list[tuple[asyncio.Future[Any], Any, Exception | None]]) -> None:
    for future, result, error in results:
        if future.done():  # its request is gone
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
