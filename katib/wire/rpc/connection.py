"""Connection to one service: calls return futures, with typed errors."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError

from katib.errors import KatibError, UnavailableError, one_line, shortage_of
from katib.wire.rpc.errors import CallStatus, Metadata, error_of, status_of_call

CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # The default pool would make a new channel wait out the back-off of a dead one to the same address.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # Despite its name, the timeout of one attempt to connect. A busy service accepts long before it responds.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_http_proxy", 0),  # services are local or in the cluster; a user's http_proxy is for neither
)

DEADLINE_SECONDS = 60.0
"""Timeout of a call: Katib's value."""

Result = TypeVar("Result")


class LazyChannel:
    """A channel that is opened by the first call and may be shared by all experiments. Thread-safe.

    Args:
        address: `host:port` or `unix:/path`.
        peer: Name of the service in errors, such as `suggestion service "tpe"`.
    """

    def __init__(self, address: str, *, peer: str, timeout_seconds: float = DEADLINE_SECONDS) -> None:
        self.address = address
        self.peer = peer
        self.answer_count = 0
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._closed = False
        self._waiter = AnswerThread("rpc-answers")

    def call(
        self,
        method: str,
        request: bytes,
        result: Callable[[bytes, Metadata], Result],
        *,
        on_error: Callable[[CallStatus], Result] | None = None,
        timeout_seconds: float | None = None,
    ) -> Future[Result]:
        """Send a request; the future holds the value of `result` for the response, or a KatibError.

        Args:
            result: Converts the serialized response and the trailing metadata.
            on_error: Converts a status, or raises; by default `fail`.
            timeout_seconds: Overrides the default deadline.
        """
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()

        settle = partial(self._settle, future, result, on_error or self.fail)
        try:
            with self._lock:
                if self._closed:
                    raise self._closed_error()
                if self._channel is None:
                    self._channel = grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)
                known = self._channel.unary_unary(method)
            if not self._waiter.take(partial(settle, partial(self._wait, known, request, timeout))):
                pending = known.future(request, timeout=timeout)
                pending.add_done_callback(lambda done: settle(partial(_outcome, done)))
        except (UnavailableError, ValueError):  # ValueError: closed between the check and the call
            future.set_exception(self._closed_error())
        except (RuntimeError, MemoryError) as error:  # most likely, no thread could be started
            future.set_exception(shortage_of(error) or error)
        return future

    def close(self) -> None:
        """Close the connection; pending calls fail with UnavailableError. Idempotent."""
        with self._lock:
            channel, self._channel, self._closed = self._channel, None, True
        if channel is not None:
            channel.close()
        self._waiter.close()

    def _closed_error(self) -> UnavailableError:
        return UnavailableError(f"{self.peer}: the connection was closed")

    def _wait(
        self, method: grpc.UnaryUnaryMultiCallable, request: bytes, timeout_seconds: float
    ) -> tuple[CallStatus, bytes]:
        try:
            reply, call = method.with_call(request, timeout=timeout_seconds)
        except grpc.RpcError as error:
            return status_of_call(error), b""
        except ValueError:
            raise self._closed_error() from None
        return status_of_call(call), reply

    def _settle(
        self,
        future: Future[Result],
        result: Callable[[bytes, Metadata], Result],
        on_error: Callable[[CallStatus], Result],
        answer: Callable[[], tuple[CallStatus, bytes]],
    ) -> None:
        try:
            status, reply = answer()
            if status.code is grpc.StatusCode.OK:
                self.answer_count += 1
                future.set_result(result(reply, status.metadata))
            else:
                future.set_result(on_error(status))
        except KatibError as error:
            future.set_exception(error)
        except DecodeError:
            future.set_exception(UnavailableError(f"{self.peer} gave an unreadable answer: not the message expected"))
        except Exception as error:  # noqa: BLE001 - a bug of Katib's belongs to the caller, not to gRPC's thread
            future.set_exception(shortage_of(error) or error)

    def fail(self, status: CallStatus) -> NoReturn:
        """Raise the error for a status, with the name and address of the service."""
        if status.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise UnavailableError(f"{self.peer} did not answer within {self._timeout_seconds:g} s")
        if status.code is grpc.StatusCode.UNAVAILABLE:
            raise UnavailableError(f"{self.peer} at {self.address} cannot be reached: {one_line(status.details)}")
        if status.code is grpc.StatusCode.CANCELLED:
            raise self._closed_error()
        raise error_of(status, peer=self.peer)


def _outcome(done: Any) -> tuple[CallStatus, bytes]:
    """Return the status of a call, and the response if there is one."""
    status = status_of_call(done)
    return status, done.result() if status.code is grpc.StatusCode.OK else b""


KEPT_SECONDS = 10.0
"""How long an idle thread is kept: there may be a thousand services that are called once an hour."""

_END_SECONDS = 5.0
"""A call ends at once when its connection is closed."""

Call = Callable[[], None]
"""Waits for a response and processes it. Must not raise."""


class AnswerThread:
    """A thread that runs calls one at a time, and is kept for the next one. Thread-safe.

    gRPC starts a thread for each asynchronous call, in the caller's time: a third of a millisecond, and several times
    that while other threads are busy. Passing a call to an existing thread takes a tenth of it.

    Args:
        kept_seconds: How long an idle thread is kept; the next call starts a new one.
    """

    def __init__(self, name: str, kept_seconds: float = KEPT_SECONDS) -> None:
        self._name = name
        self._kept_seconds = kept_seconds
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._is_busy = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def take(self, call: Call) -> bool:
        """Schedule a call; return False, without running it, while another one is in progress."""
        with self._lock:
            if self._is_busy or self._is_closed:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread
            self._is_busy = True
        self._calls.put(call)
        return True

    def close(self) -> None:
        """End the thread, after a call in progress. Later calls are declined. Idempotent."""
        with self._lock:
            self._is_closed, thread = True, self._thread
        self._calls.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_END_SECONDS)

    def _run(self) -> None:
        """Run calls until closed, or idle for too long."""
        while True:
            try:
                call = self._calls.get(timeout=self._kept_seconds)
            except queue.Empty:
                with self._lock:
                    if self._is_busy:  # a call is about to arrive
                        continue
                    self._thread = None
                    return
            if call is None:
                return
            call()
            with self._lock:
                self._is_busy = False
