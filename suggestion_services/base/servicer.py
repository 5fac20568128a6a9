"""The gRPC service in front of an algorithm.

Every refusal is INVALID_ARGUMENT with the reason as details. Anything unforeseen is UNKNOWN with one line, and is
logged once with its traceback, here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import NoReturn

import grpc

from katib.api.algorithms import AlgorithmInfo
from katib.api.types import AlgorithmSpec
from katib.errors import FieldError, InvalidError, KatibError, code_of
from katib.rpc._generated import api_pb2, api_pb2_grpc
from katib.rpc.errors import status_of
from suggestion_services.base import messages
from suggestion_services.base.algorithm import Algorithm, Problem
from suggestion_services.base.sessions import Session, Sessions
from suggestion_services.base.settings import LiteralError

EXHAUSTED_METADATA = ("katib-search-space", "exhausted")
"""Trailing metadata of a reply with fewer assignments than asked: the search space has no more points."""

MAX_COUNT = 10_000
"""The most suggestions in one request; more is a mistake, and would keep a thread busy for hours."""

_NAME_PATH = "spec.algorithm.algorithmName"

_MAX_DETAILS = 2000  # bytes; details travel percent-encoded in a header, and a header above 8 KiB breaks the call

_log = logging.getLogger(__name__)


class SuggestionServicer(api_pb2_grpc.SuggestionServicer):
    """Serves one algorithm to any number of experiments. Thread-safe; experiments do not wait for each other.

    Args:
        info: The algorithm served; requests for another name are refused.
        load: Imports its class; called at the first request, so that the process is up before heavy libraries are.
    """

    def __init__(self, info: AlgorithmInfo, load: Callable[[], type[Algorithm]]) -> None:
        self._info = info
        self._load = load
        self._sessions = Sessions()

    def ValidateAlgorithmSettings(  # noqa: N802  # the wire's name
        self, request: api_pb2.ValidateAlgorithmSettingsRequest, context: grpc.ServicerContext
    ) -> api_pb2.ValidateAlgorithmSettingsReply:
        """Tell whether the experiment can be searched with this algorithm."""
        with answered(context):
            self._prepare(request.experiment)
            return api_pb2.ValidateAlgorithmSettingsReply()

    def GetSuggestions(  # noqa: N802  # the wire's name
        self, request: api_pb2.GetSuggestionsRequest, context: grpc.ServicerContext
    ) -> api_pb2.GetSuggestionsReply:
        """Return the next assignments."""
        with answered(context):
            count = request.current_request_number
            if not 0 <= count <= MAX_COUNT:
                raise _refusal("currentRequestNumber", f"{count} is not between 0 and {MAX_COUNT}", "request-count")
            session = self._sessions.get(request.experiment, lambda: self._session(request.experiment))
            first = max(request.total_request_number - count, 0)
            with session.lock:
                trials = session.history(request.trials) if self._info.reads_history else []
                points = session.algorithm.suggest(trials, first=first, count=count)
                taken = list(takewhile(lambda _: context.is_active(), points))
            if len(taken) < count:
                context.set_trailing_metadata((EXHAUSTED_METADATA,))
            return messages.reply(session.algorithm.problem.space, taken)

    def _session(self, experiment: api_pb2.Experiment) -> Session:
        algorithm = self._prepare(experiment)
        return Session(algorithm, experiment.spec.objective.objective_metric_name)

    def _prepare(self, experiment: api_pb2.Experiment) -> Algorithm:
        spec = messages.experiment_spec(experiment)
        name = (spec.algorithm or AlgorithmSpec()).algorithm_name
        if name != self._info.name:
            cause = f"unknown algorithm name {name}"
            raise InvalidError([LiteralError(_NAME_PATH, cause, f"use {self._info.name}", "algorithm-unknown")])
        problem = Problem.of(experiment.name, spec, self._info)
        cls = self._load()
        errors = cls.check(problem)
        if errors:
            raise InvalidError(errors)
        return cls(problem)


@contextmanager
def answered(context: grpc.ServicerContext) -> Iterator[None]:
    """Turn what the body raises into a gRPC status, once for every kind of error."""
    try:
        yield
    except InvalidError as error:
        context.set_trailing_metadata(status_of(error).metadata)  # path, remedy and origin, for those who know the key
        _abort(context, grpc.StatusCode.INVALID_ARGUMENT, "; ".join(map(str, error.errors)))
    except KatibError as error:
        _abort(context, grpc.StatusCode[code_of(error).grpc_code], str(error))
    except Exception as error:  # noqa: BLE001  # the wall: whatever a library raises becomes a status
        _log.exception("request failed")
        _abort(context, grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, details: str) -> NoReturn:
    line = " ".join(details.split()).encode()
    if len(line) > _MAX_DETAILS:
        line = line[:_MAX_DETAILS] + b" ..."
    context.abort(code, line.decode(errors="ignore"))
    raise AssertionError("abort returns never")


def _refusal(path: str, cause: str, origin: str) -> InvalidError:
    return InvalidError([FieldError(path, cause, "mend the request", origin)])
