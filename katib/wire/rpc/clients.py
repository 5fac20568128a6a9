"""Clients of the controllers: the suggestion and early stopping services of one experiment, over gRPC.

Statuses are interpreted differently from Katib in these cases. During validation an unreachable service is asked again
instead of failing the experiment, and INTERNAL or UNKNOWN (how Python services report an exception) is a refusal, with
the service's own text. In later calls the same codes are failures of the service, which is asked again for a while; an
unreachable service, or one that reports a missing dependency, is asked again forever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NoReturn, TypeVar

import grpc

from katib.errors import InternalError, InvalidError, UnavailableError, one_line, shortage_in
from katib.model.algorithms import Feature, StopVerdict, SuggestionsReply, check_features
from katib.model.types import AlgorithmSetting, AlgorithmSpec, EarlyStoppingRule, Experiment, ExperimentSpec, Trial
from katib.wire.rpc import convert
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import early_stopping_pb2 as judge_pb
from katib.wire.rpc.connection import LazyChannel
from katib.wire.rpc.errors import CallStatus, Metadata, refusal

SEARCH_SPACE_KEY = "katib-search-space"
EXHAUSTED, WAITING = "exhausted", "waiting"
"""Trailing metadata of a reply: no assignments remain after these, or there are none until a trial ends."""

_SUGGESTION = "/api.v1.beta1.Suggestion/"
_EARLY_STOPPING = "/api.v1.beta1.EarlyStopping/"
_JUDGE = "/katib.earlystopping.v1.EarlyStoppingJudge/"

JUDGE_SECONDS = 10.0
"""Timeout of a judgement: a later one is of no use."""

_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.NOT_FOUND,
    }
)
_AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
_BROKEN = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL})
_PASSED_ON = "StatusCode.UNAVAILABLE"
"""In the details of UNKNOWN: a Python service that lets the error of its own call through, as Katib's medianstop does
while the DB manager is unavailable."""

_FEATURES: dict[int, Feature] = {number: feature for feature, number in convert.FEATURES.items()}

Known = TypeVar("Known")


class ServiceClient:
    """Client of an experiment's services. Implements `katib.engine.controllers.ports.SuggestionService`.

    Thread-safe; the connections belong to the caller.

    Args:
        suggestion: Connection to the suggestion service.
        early_stopping: Connection to the early stopping service, None if the experiment has none.
        reads_history: Whether the suggestion service needs the trials.
        db_manager_address: Returns the address from which early stopping services read metrics, `host:port` or
            `unix:/path`.
    """

    def __init__(
        self,
        suggestion: LazyChannel,
        early_stopping: LazyChannel | None = None,
        *,
        reads_history: bool = True,
        db_manager_address: Callable[[], str] = str,
    ) -> None:
        self._suggestion = suggestion
        self._early_stopping = early_stopping
        self.reads_history = reads_history
        self._db_manager_address = db_manager_address
        self._encoder = convert.TrialEncoder(unmeasured_tag=convert.UNMEASURED_TRIALS_TAG)
        self._earlier = convert.TrialEncoder(convert.EARLIER_TRIALS_TAG)
        self._judged = convert.TrialEncoder()
        self._judges: bool | None = None
        self._message: tuple[tuple[str, ExperimentSpec], pb.Experiment] | None = None

    def validate(self, experiment: Experiment) -> Future[None]:
        """Validate with both services at once; the future raises all errors of both."""
        asked = [self._validate_algorithm(experiment)]
        if self._early_stopping is not None and experiment.spec.early_stopping is not None:
            asked.append(self._validate_early_stopping(self._early_stopping, experiment))
        return _all_of(asked)

    def get_suggestions(
        self,
        experiment: Experiment,
        trials: Sequence[Trial],
        *,
        current_request: int,
        total_request: int,
        earlier: Sequence[Trial] = (),
    ) -> Future[SuggestionsReply]:
        """Request assignments, given the experiment's own trials and earlier ones to learn from."""
        head = pb.GetSuggestionsRequest(
            experiment=self._message_of(experiment),
            current_request_number=current_request,
            total_request_number=total_request,
            takes_fewer=True,
        )
        history = self._encoder.encode(trials) + self._earlier.encode(earlier) if self.reads_history else b""
        connection = self._suggestion
        return connection.call(
            _SUGGESTION + "GetSuggestions",
            head.SerializeToString() + history,
            partial(_suggestions, asked=current_request),
            on_error=lambda status: _retry_on_failure(connection, status),
        )

    def _message_of(self, experiment: Experiment) -> pb.Experiment:
        """Return an experiment as services see it, converted again only after a relevant change."""
        known, asked_about = self._message, (experiment.name, experiment.spec)
        if known is None or known[0] != asked_about:
            known = self._message = asked_about, convert.experiment_message(experiment)
        return known[1]

    def get_early_stopping_rules(
        self, experiment: Experiment, trials: Sequence[Trial]
    ) -> Future[tuple[EarlyStoppingRule, ...]]:
        """Request the rules for the next trials."""
        connection = self._early_stopping
        if connection is None:
            return _known(())
        head = pb.GetEarlyStoppingRulesRequest(
            experiment=self._message_of(experiment), db_manager_address=self._db_manager_address()
        )
        return connection.call(
            _EARLY_STOPPING + "GetEarlyStoppingRules",
            head.SerializeToString() + self._encoder.encode(trials),
            lambda reply, _: convert.rules_of(pb.GetEarlyStoppingRulesReply.FromString(reply).early_stopping_rules),
            on_error=lambda status: _retry_on_failure(connection, status),
        )

    def judges(self, experiment: Experiment) -> Future[bool]:
        """Return whether the early stopping service judges running trials; asks at most once."""
        connection = self._early_stopping
        if connection is None or self._judges is not None:
            return _known(bool(self._judges))

        def learn(judges: bool) -> bool:
            self._judges = judges
            return judges

        def on_error(status: CallStatus) -> bool:
            if status.code in _AWAY:
                connection.fail(status)
            return learn(status.code is not grpc.StatusCode.UNIMPLEMENTED)  # it knows the call, but refused this one

        return connection.call(
            _JUDGE + "Judge",
            self._judge_request(experiment, b""),
            lambda _reply, _metadata: learn(True),
            on_error=on_error,
            timeout_seconds=JUDGE_SECONDS,
        )

    def judge(self, experiment: Experiment, trials: Sequence[Trial]) -> Future[tuple[StopVerdict, ...] | None]:
        """Return the running trials to stop, given the present readings; None if the service does not judge."""
        connection = self._early_stopping
        if connection is None:
            return _known(None)

        def verdicts(reply: bytes) -> tuple[StopVerdict, ...]:
            self._judges = True
            found = judge_pb.JudgeReply.FromString(reply).verdicts
            return tuple(StopVerdict(verdict.trial_name, one_line(verdict.reason)) for verdict in found)

        def on_error(status: CallStatus) -> None:
            if status.code is not grpc.StatusCode.UNIMPLEMENTED:
                _retry_on_failure(connection, status)
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

    def _validate_algorithm(self, experiment: Experiment) -> Future[None]:
        request = pb.ValidateAlgorithmSettingsRequest(experiment=self._message_of(experiment))
        return self._suggestion.call(
            _SUGGESTION + "ValidateAlgorithmSettings",
            request.SerializeToString(),
            lambda reply, _: _check_features(experiment, pb.ValidateAlgorithmSettingsReply.FromString(reply).features),
            on_error=lambda status: _unvalidated(self._suggestion, status, experiment),
        )

    @staticmethod
    def _validate_early_stopping(connection: LazyChannel, experiment: Experiment) -> Future[None]:
        request = pb.ValidateEarlyStoppingSettingsRequest(
            early_stopping=convert.early_stopping_message(experiment.spec)
        )
        return connection.call(
            _EARLY_STOPPING + "ValidateEarlyStoppingSettings",
            request.SerializeToString(),
            lambda _reply, _metadata: None,
            on_error=lambda status: _refused(connection, status, path="spec.earlyStopping"),
        )


def _known(value: Known) -> Future[Known]:
    """Return a completed future."""
    future: Future[Known] = Future()
    future.set_result(value)
    return future


def _suggestions(answer: bytes, metadata: Metadata, *, asked: int) -> SuggestionsReply:
    """Decode a reply. An empty one means the end unless marked otherwise: some services cannot mark it."""
    reply = pb.GetSuggestionsReply.FromString(answer)
    waits = (SEARCH_SPACE_KEY, WAITING) in metadata
    is_empty = asked > 0 and not reply.parameter_assignments
    return SuggestionsReply(
        convert.assignments_of(reply),
        tuple(AlgorithmSetting(name=s.name, value=s.value) for s in reply.algorithm.algorithm_settings),
        exhausted=(SEARCH_SPACE_KEY, EXHAUSTED) in metadata or (is_empty and not waits),
        waits=waits,
        explanation=one_line(reply.explanation),
    )


def _check_features(experiment: Experiment, numbers: Iterable[int]) -> None:
    """Raise InvalidError if a service lacks a feature that the experiment needs; Katib's services list no features."""
    algorithm = experiment.spec.algorithm or AlgorithmSpec()
    known = [_FEATURES[number] for number in numbers if number in _FEATURES]
    errors = check_features(experiment.spec, algorithm.algorithm_name, known)
    if errors:
        raise InvalidError(errors)


def _unvalidated(connection: LazyChannel, status: CallStatus, experiment: Experiment) -> None:
    """Interpret the status of a suggestion service.

    One without validation supports the features that Katib's messages can express.
    """
    _refused(connection, status, path="spec.algorithm")
    _check_features(experiment, ())


def _refused(connection: LazyChannel, status: CallStatus, *, path: str) -> None:
    """Interpret the status of a validation; returning means valid."""
    if status.code is grpc.StatusCode.UNIMPLEMENTED:
        return
    if status.code in _REFUSALS:
        _check_shortage(connection, status)
        raise refusal(status, path=path)
    connection.fail(status)


def _retry_on_failure(connection: LazyChannel, status: CallStatus) -> NoReturn:
    if status.code in _BROKEN:
        _check_shortage(connection, status)
        cls = UnavailableError if _PASSED_ON in status.details else InternalError
        raise cls(f"{connection.peer} failed: {one_line(status.details) or status.code.name}")
    connection.fail(status)


def _check_shortage(connection: LazyChannel, status: CallStatus) -> None:
    """Raise UnavailableError if a service failed for lack of a resource such as memory, but reports a general error."""
    if status.code in _BROKEN and (shortage := shortage_in(status.details)) is not None:
        raise UnavailableError(f"{connection.peer}: {shortage}")


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
