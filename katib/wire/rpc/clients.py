"""Client of the controllers: the suggestion service of one experiment, over gRPC.

Statuses are interpreted differently from Katib in these cases. During validation an unreachable service is asked again
instead of failing the experiment, and INTERNAL or UNKNOWN (how Python services report an exception) is a refusal, with
the service's own text. In later calls the same codes are failures of the service, which is asked again for a while; an
unreachable service, or one that reports a missing dependency, is asked again forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

import grpc

from katib.errors import InternalError, InvalidError, UnavailableError, one_line, shortage_in
from katib.model.algorithms import Feature, StopVerdict, SuggestionsReply, check_features
from katib.model.types import AlgorithmSetting, AlgorithmSpec, EarlyStoppingRule, Experiment, ExperimentSpec, Trial
from katib.wire.rpc import convert
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.connection import LazyChannel
from katib.wire.rpc.errors import CallStatus, Metadata, refusal

if TYPE_CHECKING:
    from katib.wire.rpc.trial_messages import TrialEncoder

SEARCH_SPACE_KEY = "katib-search-space"
EXHAUSTED, WAITING = "exhausted", "waiting"
"""Trailing metadata of a reply: no assignments remain after these, or there are none until a trial ends."""

_SUGGESTION = "/api.v1.beta1.Suggestion/"
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
AWAY = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
_BROKEN = frozenset({grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL})
_PASSED_ON = "StatusCode.UNAVAILABLE"
"""In the details of UNKNOWN: a Python service that lets the error of its own call through, as Katib's medianstop does
while the DB manager is unavailable."""

_FEATURES: dict[int, Feature] = {number: feature for feature, number in convert.FEATURES.items()}

Known = TypeVar("Known")


class ServiceClient:
    """Client of an experiment's suggestion service. Implements `katib.engine.controllers.ports.SuggestionService`.

    Thread-safe; the connection belongs to the caller.

    Args:
        reads_history: Whether it needs the trials.
    """

    def __init__(self, suggestion: LazyChannel, *, reads_history: bool = True) -> None:
        self._suggestion = suggestion
        self.reads_history = reads_history
        self._message: tuple[tuple[str, ExperimentSpec], pb.Experiment] | None = None

    @cached_property
    def _encoders(self) -> tuple[TrialEncoder, TrialEncoder]:
        """Encoders of the experiment's own trials and of earlier ones."""
        from katib.wire.rpc.trial_messages import TrialEncoder

        return TrialEncoder(unmeasured=True), TrialEncoder("earlier_trials")

    def validate(self, experiment: Experiment) -> Future[None]:
        """Validate with the service; the future raises all errors."""
        request = pb.ValidateAlgorithmSettingsRequest(experiment=self._message_of(experiment))
        return self._suggestion.call(
            _SUGGESTION + "ValidateAlgorithmSettings",
            request.SerializeToString(),
            lambda reply, _: _check_features(experiment, pb.ValidateAlgorithmSettingsReply.FromString(reply).features),
            on_error=lambda status: _unvalidated(self._suggestion, status, experiment),
        )

    def get_suggestions(
        self,
        experiment: Experiment,
        trials: Sequence[Trial],
        *,
        current_request: int,
        total_request: int,
        earlier: Sequence[Trial] = (),
    ) -> Future[SuggestionsReply]:
        head = pb.GetSuggestionsRequest(
            experiment=self._message_of(experiment),
            current_request_number=current_request,
            total_request_number=total_request,
            takes_fewer=True,
        )
        history = b""
        if self.reads_history:
            own, others = self._encoders
            history = own.encode(trials) + others.encode(earlier)
        connection = self._suggestion
        return connection.call(
            _SUGGESTION + "GetSuggestions",
            head.SerializeToString() + history,
            partial(_suggestions, asked=current_request),
            on_error=lambda status: retry_on_failure(connection, status),
        )

    def _message_of(self, experiment: Experiment) -> pb.Experiment:
        """Return an experiment as services see it, converted again only after a relevant change."""
        known, asked_about = self._message, (experiment.name, experiment.spec)
        if known is None or known[0] != asked_about:
            known = self._message = asked_about, convert.experiment_message(experiment)
        return known[1]

    def get_early_stopping_rules(
        self,
        experiment: Experiment,  # noqa: ARG002 - there is no early stopping service
        trials: Sequence[Trial],  # noqa: ARG002 - as above
    ) -> Future[tuple[EarlyStoppingRule, ...]]:
        return known(())

    def judges(self, experiment: Experiment) -> Future[bool]:  # noqa: ARG002 - as above
        return known(False)

    def judge(
        self,
        experiment: Experiment,  # noqa: ARG002 - as above
        trials: Sequence[Trial],  # noqa: ARG002 - as above
    ) -> Future[tuple[StopVerdict, ...] | None]:
        return known(None)


def known(value: Known) -> Future[Known]:
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
    refused(connection, status, path="spec.algorithm")
    _check_features(experiment, ())


def refused(connection: LazyChannel, status: CallStatus, *, path: str) -> None:
    """Interpret the status of a validation; returning means valid."""
    if status.code is grpc.StatusCode.UNIMPLEMENTED:
        return
    if status.code in _REFUSALS:
        _check_shortage(connection, status)
        raise refusal(status, path=path)
    connection.fail(status)


def retry_on_failure(connection: LazyChannel, status: CallStatus) -> NoReturn:
    if status.code in _BROKEN:
        _check_shortage(connection, status)
        cls = UnavailableError if _PASSED_ON in status.details else InternalError
        raise cls(f"{connection.peer} failed: {one_line(status.details) or status.code.name}")
    connection.fail(status)


def _check_shortage(connection: LazyChannel, status: CallStatus) -> None:
    """Raise UnavailableError if a service failed for lack of a resource such as memory, but reports a general error."""
    if status.code in _BROKEN and (shortage := shortage_in(status.details)) is not None:
        raise UnavailableError(f"{connection.peer}: {shortage}")
