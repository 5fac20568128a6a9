"""Client of the controllers for an experiment with early stopping: its services are the two of one experiment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

import grpc
from typing_extensions import override

from katib.errors import InvalidError, one_line
from katib.model.algorithms import StopVerdict
from katib.model.types import ComparisonType, EarlyStoppingRule, Experiment, Trial
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import early_stopping_pb2 as judge_pb
from katib.wire.rpc.clients import AWAY, ServiceClient, known, refused, retry_on_failure
from katib.wire.rpc.connection import LazyChannel
from katib.wire.rpc.convert import early_stopping_message
from katib.wire.rpc.errors import CallStatus
from katib.wire.rpc.trial_messages import TrialEncoder

_EARLY_STOPPING = "/api.v1.beta1.EarlyStopping/"
_JUDGE = "/katib.earlystopping.v1.EarlyStoppingJudge/"

JUDGE_SECONDS = 10.0
"""Timeout of a judgement: a later one is of no use."""

_COMPARISONS = {
    pb.EQUAL: ComparisonType.EQUAL,
    pb.LESS: ComparisonType.LESS,
    pb.GREATER: ComparisonType.GREATER,
}


class JudgedServiceClient(ServiceClient):
    """Client of a suggestion service and an early stopping service.

    Thread-safe; the connections belong to the caller.

    Args:
        reads_history: Whether the suggestion service needs the trials.
        db_manager_address: Returns the address from which early stopping services read metrics, `host:port` or
            `unix:/path`.
    """

    def __init__(
        self,
        suggestion: LazyChannel,
        early_stopping: LazyChannel,
        *,
        reads_history: bool = True,
        db_manager_address: Callable[[], str] = str,
    ) -> None:
        super().__init__(suggestion, reads_history=reads_history)
        self._early_stopping = early_stopping
        self._db_manager_address = db_manager_address
        self._judged = TrialEncoder()
        self._judges: bool | None = None

    @override
    def validate(self, experiment: Experiment) -> Future[None]:
        """Validate with both services at once; the future raises all errors of both."""
        asked = [super().validate(experiment)]
        if experiment.spec.early_stopping is not None:
            asked.append(self._validate_early_stopping(self._early_stopping, experiment))
        return _all_of(asked)

    @override
    def get_early_stopping_rules(
        self, experiment: Experiment, trials: Sequence[Trial]
    ) -> Future[tuple[EarlyStoppingRule, ...]]:
        connection = self._early_stopping
        head = pb.GetEarlyStoppingRulesRequest(
            experiment=self._message_of(experiment), db_manager_address=self._db_manager_address()
        )
        return connection.call(
            _EARLY_STOPPING + "GetEarlyStoppingRules",
            head.SerializeToString() + self._encoders[0].encode(trials),
            lambda reply, _: rules_of(pb.GetEarlyStoppingRulesReply.FromString(reply).early_stopping_rules),
            on_error=lambda status: retry_on_failure(connection, status),
        )

    @override
    def judges(self, experiment: Experiment) -> Future[bool]:
        connection = self._early_stopping
        if self._judges is not None:
            return known(self._judges)

        def learn(judges: bool) -> bool:
            self._judges = judges
            return judges

        def on_error(status: CallStatus) -> bool:
            if status.code in AWAY:
                connection.fail(status)
            return learn(status.code is not grpc.StatusCode.UNIMPLEMENTED)  # it knows the call, but refused this one

        return connection.call(
            _JUDGE + "Judge",
            self._judge_request(experiment, b""),
            lambda _reply, _metadata: learn(True),
            on_error=on_error,
            timeout_seconds=JUDGE_SECONDS,
        )

    @override
    def judge(self, experiment: Experiment, trials: Sequence[Trial]) -> Future[tuple[StopVerdict, ...] | None]:
        connection = self._early_stopping

        def verdicts(reply: bytes) -> tuple[StopVerdict, ...]:
            self._judges = True
            found = judge_pb.JudgeReply.FromString(reply).verdicts
            return tuple(StopVerdict(verdict.trial_name, one_line(verdict.reason)) for verdict in found)

        def on_error(status: CallStatus) -> None:
            if status.code is not grpc.StatusCode.UNIMPLEMENTED:
                retry_on_failure(connection, status)
            self._judges = False

        return connection.call(
            _JUDGE + "Judge",
            self._judge_request(experiment, self._judged.encode(trials)),
            lambda reply, _: verdicts(reply),
            on_error=on_error,
            timeout_seconds=JUDGE_SECONDS,
        )

    def _judge_request(self, experiment: Experiment, trials: bytes) -> bytes:
        head = judge_pb.JudgeRequest(
            experiment=self._message_of(experiment),
            db_manager_address=self._db_manager_address(),
            namespace=experiment.namespace,
        )
        return head.SerializeToString() + trials

    @staticmethod
    def _validate_early_stopping(connection: LazyChannel, experiment: Experiment) -> Future[None]:
        request = pb.ValidateEarlyStoppingSettingsRequest(early_stopping=early_stopping_message(experiment.spec))
        return connection.call(
            _EARLY_STOPPING + "ValidateEarlyStoppingSettings",
            request.SerializeToString(),
            lambda _reply, _metadata: None,
            on_error=lambda status: refused(connection, status, path="spec.earlyStopping"),
        )


def rules_of(messages: Iterable[pb.EarlyStoppingRule]) -> tuple[EarlyStoppingRule, ...]:
    """Return early stopping rules as objects; an unknown comparison means `equal`."""
    return tuple(
        EarlyStoppingRule(
            name=m.name,
            value=m.value,
            comparison=_COMPARISONS.get(m.comparison, ComparisonType.EQUAL),
            start_step=m.start_step,
        )
        for m in messages
    )


def _all_of(futures: Sequence[Future[None]]) -> Future[None]:
    """Return a future of all; it raises every field error if any refused, else the first failure."""
    joined: Future[None] = Future()
    joined.set_running_or_notify_cancel()
    lock = threading.Lock()
    outstanding = set(futures)

    def settle(future: Future[None]) -> None:
        with lock:
            outstanding.discard(future)
            if outstanding:
                return
        error = _first_of([error for error in (future.exception() for future in futures) if error is not None])
        if error is None:
            joined.set_result(None)
        else:
            joined.set_exception(error)

    for future in futures:
        future.add_done_callback(settle)
    return joined


def _first_of(errors: Sequence[BaseException]) -> BaseException | None:
    refusals = [error for error in errors if isinstance(error, InvalidError)]
    if refusals:
        return InvalidError(field for error in refusals for field in error.errors)
    return next(iter(errors), None)
