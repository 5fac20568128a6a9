"""The gRPC service in front of an algorithm.

Every refusal is INVALID_ARGUMENT with the reason as details. Shortages of the machine, such as memory, are
RESOURCE_EXHAUSTED. An unexpected error is UNKNOWN with one line, and is logged once with its traceback, here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import NamedTuple, NoReturn

import grpc

from katib.errors import InvalidError, KatibError, ShortageError, code_of, invalid, shortage_of
from katib.model.algorithms import MOST_PARALLEL, AlgorithmInfo
from katib.model.space import Point
from katib.model.types import ExperimentSpec, ObjectiveSpec
from katib.model.wording import one_of
from katib.wire.rpc._generated import api_pb2
from katib.wire.rpc._generated.suggestions_pb2 import UndecodedSuggestionsRequest
from katib.wire.rpc.convert import FEATURES
from katib.wire.rpc.errors import status_of
from katib.wire.rpc.services import add_servicer
from suggestion_services.base import messages
from suggestion_services.base.algorithm import Algorithm, AwaitingTrials, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.allowed import kept_allowed
from suggestion_services.base.sessions import MAX_SESSIONS, LatestUsed, SearchSession, session_key
from suggestion_services.base.settings import LiteralError

EXHAUSTED_METADATA = ("katib-search-space", "exhausted")
"""Trailing metadata of a reply with fewer assignments than asked: the search space has no more points."""

WAITING_METADATA = ("katib-search-space", "waiting")
"""The same, if there will be more once a running trial has ended."""

_NAME_PATH = "spec.algorithm.algorithmName"
_SETTINGS_PATH = "spec.algorithm.algorithmSettings"

_MAX_DETAILS = 2000  # bytes; details travel percent-encoded in a header, and a header above 8 KiB breaks the call

shortages: list[ShortageError] = []
"""A shortage of the machine while a request was answered. The process then ends and a fresh one starts: a partially
imported library would fail all later requests."""

_log = logging.getLogger(__name__)


def add_to_server(servicer: SuggestionServicer, server: grpc.Server) -> None:
    """Register Katib's service `Suggestion` with a server."""
    add_servicer(server, servicer, api_pb2, requests={"GetSuggestions": UndecodedSuggestionsRequest})


class ServedAlgorithm(NamedTuple):
    """A served algorithm.

    Attributes:
        load: Imports its class; called at the first request, so that the process starts before heavy libraries load.
    """

    info: AlgorithmInfo
    load: Callable[[], type[Algorithm]]


class SuggestionServicer:
    """Serves algorithms to any number of experiments. Thread-safe; experiments do not wait for each other.

    One image can serve several algorithms, even if a KatibConfig gives it no arguments.

    Args:
        algorithms: The one that a request's experiment names answers it; other names are refused.
    """

    def __init__(self, algorithms: Iterable[ServedAlgorithm]) -> None:
        self._served = {served.info.name: served for served in algorithms}
        self._sessions = LatestUsed[tuple[str, bytes], SearchSession](MAX_SESSIONS)

    def ValidateAlgorithmSettings(
        self, request: api_pb2.ValidateAlgorithmSettingsRequest, context: grpc.ServicerContext
    ) -> api_pb2.ValidateAlgorithmSettingsReply:
        with answered(context):
            spec = messages.experiment_spec(request.experiment)
            served = self._served_for(request.experiment)
            if spec.parameters or spec.nas_config is not None:
                _prepare(served, request.experiment, spec, starts=True)
            else:
                _check_settings(served, request.experiment, spec)
            return api_pb2.ValidateAlgorithmSettingsReply(
                features=[FEATURES[feature] for feature in served.info.features]
            )

    def GetSuggestions(
        self, request: UndecodedSuggestionsRequest, context: grpc.ServicerContext
    ) -> api_pb2.GetSuggestionsReply:
        with answered(context):
            count = request.current_request_number
            if not 0 <= count <= MOST_PARALLEL:
                cause = f"{count} is not between 0 and {MOST_PARALLEL}"
                raise invalid("currentRequestNumber", cause, "fix the request", "request-count")
            served = self._served_for(request.experiment)
            experiment = messages.without_settings(request.experiment, served.info.echoed)
            session = self._sessions.get(session_key(experiment), lambda: _session(served, experiment))
            first = max(request.total_request_number - count, 0)
            with session.lock:
                trials = session.history(request) if served.info.reads_history else []
                points = session.algorithm.suggest(trials, first=first, count=count)
                taken: list[Point | Proposal] = []
                missing = EXHAUSTED_METADATA
                try:
                    taken.extend(takewhile(lambda _: context.is_active(), points))
                except AwaitingTrials:
                    missing = WAITING_METADATA
                if not request.takes_fewer and not any(map(_is_running, trials)):
                    taken.extend(session.algorithm.ahead(first=first + len(taken), count=count - len(taken)))
                explanation, settings = session.algorithm.explain(), session.algorithm.reply_settings()
            if len(taken) < count:
                context.set_trailing_metadata((missing,))
            space = session.algorithm.problem.space
            suggestions = [kept_allowed(space, one) for one in taken]
            return messages.reply(space, suggestions, explanation, settings)

    def _served_for(self, experiment: api_pb2.Experiment) -> ServedAlgorithm:
        name = experiment.spec.algorithm.algorithm_name
        if name not in self._served:
            cause = f"unknown algorithm name {name}"
            raise InvalidError([LiteralError(_NAME_PATH, cause, one_of(self._served), "algorithm-unknown")])
        return self._served[name]


def _session(served: ServedAlgorithm, experiment: api_pb2.Experiment) -> SearchSession:
    spec = messages.experiment_spec(experiment)
    return SearchSession(_prepare(served, experiment, spec), spec.objective or ObjectiveSpec())


def _prepare(
    served: ServedAlgorithm, experiment: api_pb2.Experiment, spec: ExperimentSpec, *, starts: bool = False
) -> Algorithm:
    problem = Problem.of(experiment.name, spec, served.info)
    cls = served.load()
    errors = cls.check(problem) or (cls.check_before_start(problem) if starts else ())
    if errors:
        raise InvalidError(errors)
    return cls(problem)


def _check_settings(served: ServedAlgorithm, experiment: api_pb2.Experiment, spec: ExperimentSpec) -> None:
    """Check an experiment without parameters, as some callers send it."""
    problem = Problem.of(experiment.name, spec, served.info, allow_no_parameters=True)
    errors = [error for error in served.load().check(problem) if error.path.startswith(_SETTINGS_PATH)]
    if errors:
        raise InvalidError(errors)


def _is_running(trial: PastTrial) -> bool:
    return trial.outcome is TrialOutcome.PENDING and not trial.is_earlier


@contextmanager
def answered(context: grpc.ServicerContext) -> Iterator[None]:
    """Convert an exception of the body to a gRPC status, in one place for all kinds of error."""
    try:
        yield
    except InvalidError as error:
        context.set_trailing_metadata(status_of(error).metadata)  # path, remedy and origin, for clients that read it
        _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "; ".join(map(str, error.errors)))
    except KatibError as error:
        _abort(context, grpc.StatusCode[code_of(error).grpc_code], str(error))
    except Exception as error:  # noqa: BLE001  # the wall: whatever a library raises becomes a status
        if (shortage := shortage_of(error)) is not None:
            shortages.append(shortage)
            _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(shortage))
        _log.exception("request failed")
        _abort(context, grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, details: str) -> NoReturn:
    line = " ".join(details.split()).encode()
    if len(line) > _MAX_DETAILS:
        line = line[:_MAX_DETAILS] + b" ..."
    context.abort(code, line.decode(errors="ignore"))
    raise AssertionError("abort() always raises")
