"""What the controllers call: the suggestion and early stopping services of one experiment, over gRPC.

How a status is understood differs from Katib where Katib goes wrong. At validation a service that is not there is asked
again instead of failing the experiment, and one that breaks on the input (INTERNAL, UNKNOWN: how Python services
report an exception) has refused it, with its own text. At later calls the same codes are passing failures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NoReturn

import grpc

from katib.api.suggestions import SuggestedAssignment, SuggestionsReply
from katib.api.types import EarlyStoppingRule, Experiment, Trial
from katib.errors import InvalidError, UnavailableError
from katib.rpc import convert
from katib.rpc._generated import api_pb2 as pb
from katib.rpc.connection import Connection
from katib.rpc.errors import Metadata, Status, one_line, refusal

SEARCH_SPACE_KEY = "katib-search-space"
EXHAUSTED = "exhausted"
"""Trailing metadata of a reply: the search space has no more than these assignments."""

_SUGGESTION = "/api.v1.beta1.Suggestion/"
_EARLY_STOPPING = "/api.v1.beta1.EarlyStopping/"

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
_PASSING = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL})


class ServiceClient:
    """Fits `katib.controllers.ports.SuggestionService`. Thread-safe; the connections belong to whoever made them.

    Args:
        suggestion: To the suggestion service.
        early_stopping: To the early stopping service, None when the experiment has none.
        reads_history: Whether the suggestion service needs the trials.
        db_manager_address: Returns where early stopping services read metrics, `host:port` or `unix:/path`.
    """

    def __init__(
        self,
        suggestion: Connection,
        early_stopping: Connection | None = None,
        *,
        reads_history: bool = True,
        db_manager_address: Callable[[], str] = str,
    ) -> None:
        self._suggestion = suggestion
        self._early_stopping = early_stopping
        self.reads_history = reads_history
        self._db_manager_address = db_manager_address
        self._encoder = convert.TrialEncoder()

    def validate(self, experiment: Experiment) -> Future[None]:
        """Ask both services at once; the future holds all errors of both."""
        asked = [self._validate_algorithm(experiment)]
        if self._early_stopping is not None and experiment.spec.early_stopping is not None:
            asked.append(self._validate_early_stopping(self._early_stopping, experiment))
        return _all_of(asked)

    def get_suggestions(
        self, experiment: Experiment, trials: Sequence[Trial], *, current_request: int, total_request: int
    ) -> Future[SuggestionsReply]:
        """Ask for assignments."""
        head = pb.GetSuggestionsRequest(
            experiment=convert.experiment_message(experiment),
            current_request_number=current_request,
            total_request_number=total_request,
        )
        history = self._encoder.encode(trials) if self.reads_history else b""
        connection = self._suggestion

        def result(reply: bytes, metadata: Metadata) -> SuggestionsReply:
            return _suggestions(pb.GetSuggestionsReply.FromString(reply), metadata, asked=current_request)

        return connection.call(
            _SUGGESTION + "GetSuggestions",
            head.SerializeToString() + history,
            result,
            on_error=lambda status: _retry_on_failure(connection, status),
        )

    def get_early_stopping_rules(
        self, experiment: Experiment, trials: Sequence[Trial]
    ) -> Future[tuple[EarlyStoppingRule, ...]]:
        """Ask for the rules that the next trials start with."""
        connection = self._early_stopping
        if connection is None:
            none: Future[tuple[EarlyStoppingRule, ...]] = Future()
            none.set_result(())
            return none
        head = pb.GetEarlyStoppingRulesRequest(
            experiment=convert.experiment_message(experiment), db_manager_address=self._db_manager_address()
        )
        return connection.call(
            _EARLY_STOPPING + "GetEarlyStoppingRules",
            head.SerializeToString() + self._encoder.encode(trials),
            lambda reply, _: convert.rules_of(pb.GetEarlyStoppingRulesReply.FromString(reply).early_stopping_rules),
            on_error=lambda status: _retry_on_failure(connection, status),
        )

    def _validate_algorithm(self, experiment: Experiment) -> Future[None]:
        request = pb.ValidateAlgorithmSettingsRequest(experiment=convert.experiment_message(experiment))
        return self._suggestion.call(
            _SUGGESTION + "ValidateAlgorithmSettings",
            request.SerializeToString(),
            lambda _reply, _metadata: None,
            on_error=lambda status: _refused(self._suggestion, status, path="spec.algorithm"),
        )

    @staticmethod
    def _validate_early_stopping(connection: Connection, experiment: Experiment) -> Future[None]:
        request = pb.ValidateEarlyStoppingSettingsRequest(
            early_stopping=convert.early_stopping_message(experiment.spec)
        )
        return connection.call(
            _EARLY_STOPPING + "ValidateEarlyStoppingSettings",
            request.SerializeToString(),
            lambda _reply, _metadata: None,
            on_error=lambda status: _refused(connection, status, path="spec.earlyStopping"),
        )


def _suggestions(reply: pb.GetSuggestionsReply, metadata: Metadata, *, asked: int) -> SuggestionsReply:
    """Return a reply as an object. An empty one means the end too: some services know no other way to say it."""
    assignments = tuple(
        SuggestedAssignment(convert.assignments_of(m.assignments), m.trial_name, dict(m.labels))
        for m in reply.parameter_assignments
    )
    exhausted = (SEARCH_SPACE_KEY, EXHAUSTED) in metadata or (asked > 0 and not assignments)
    return SuggestionsReply(assignments, convert.settings_of(reply.algorithm), exhausted)


def _refused(connection: Connection, status: Status, *, path: str) -> None:
    """Understand the status of a validation; returning means valid."""
    if status.code is grpc.StatusCode.UNIMPLEMENTED:
        return
    if status.code in _REFUSALS:
        raise refusal(status, path=path)
    connection.fail(status)


def _retry_on_failure(connection: Connection, status: Status) -> NoReturn:
    if status.code in _PASSING:
        raise UnavailableError(f"{connection.peer} failed: {one_line(status.details) or status.code.name}")
    connection.fail(status)


def _all_of(futures: Sequence[Future[None]]) -> Future[None]:
    """Return a future that is done when all are: with every field error if any refused, else with the first failure."""
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
