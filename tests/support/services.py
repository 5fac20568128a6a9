"""Suggestion services that behave as a test wants, on real gRPC; and a way to wait without sleeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc

from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import early_stopping_pb2 as judging
from katib.wire.rpc.services import add_servicer
from katib.wire.rpc.tokens import METADATA_KEY

Handler = Callable[[Any, grpc.ServicerContext], Any]


class ScriptedSuggestion:
    """Answers with what the test gave it and keeps the requests."""

    def __init__(self, suggest: Handler | None = None, validate: Handler | None = None) -> None:
        self.requests: list[pb.GetSuggestionsRequest] = []
        self._suggest = suggest or (lambda request, _: some_suggestions(request.current_request_number))
        self._validate = validate or (lambda *_: pb.ValidateAlgorithmSettingsReply())

    def GetSuggestions(self, request: pb.GetSuggestionsRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        self.requests.append(request)
        return self._suggest(request, context)

    def ValidateAlgorithmSettings(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        return self._validate(request, context)


class ScriptedEarlyStopping:
    """Answers with what the test gave it and keeps the requests."""

    def __init__(self, rules: Handler | None = None, validate: Handler | None = None) -> None:
        self.requests: list[pb.GetEarlyStoppingRulesRequest] = []
        self._rules = rules or (lambda *_: pb.GetEarlyStoppingRulesReply())
        self._validate = validate or (lambda *_: pb.ValidateEarlyStoppingSettingsReply())

    def GetEarlyStoppingRules(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        self.requests.append(request)
        return self._rules(request, context)

    def ValidateEarlyStoppingSettings(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        return self._validate(request, context)


class ScriptedJudge(ScriptedEarlyStopping):
    """An early stopping service that judges running trials, as the test says."""

    def __init__(self, judge: Handler) -> None:
        super().__init__()
        self.judged: list[judging.JudgeRequest] = []
        self._judge = judge

    def Judge(self, request: judging.JudgeRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        self.judged.append(request)
        return self._judge(request, context)


class MemoryDBManager:
    """An observation log in a dictionary, for services that read metrics."""

    def __init__(self) -> None:
        self.readings: dict[str, list[tuple[str, str]]] = {}
        self.reads: list[str] = []
        self.tokens: set[str] = set()

    def GetObservationLog(self, request: pb.GetObservationLogRequest, context: grpc.ServicerContext) -> Any:  # noqa: N802 - the wire's name
        self.reads.append(request.trial_name)
        self.tokens.add(dict(context.invocation_metadata()).get(METADATA_KEY, ""))
        logs = [
            pb.MetricLog(time_stamp=time_stamp, metric=pb.Metric(name=request.metric_name, value=value))
            for time_stamp, value in self.readings.get(request.trial_name, [])
        ]
        return pb.GetObservationLogReply(observation_log=pb.ObservationLog(metric_logs=logs))


def some_suggestions(count: int) -> pb.GetSuggestionsReply:
    """Return a reply with that many assignments of a parameter `lr`."""
    return pb.GetSuggestionsReply(
        parameter_assignments=[
            pb.GetSuggestionsReply.ParameterAssignments(
                assignments=[pb.ParameterAssignment(name="lr", value=f"0.0{i + 1}")]
            )
            for i in range(count)
        ]
    )


@contextmanager
def serving(
    suggestion: ScriptedSuggestion | None = None,
    early_stopping: object | None = None,
    db_manager: object | None = None,
    handlers: tuple[grpc.GenericRpcHandler, ...] = (),
) -> Iterator[str]:
    """Serve on a Unix socket and yield its address; calls in flight are ended at the end."""
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    if suggestion is not None:
        add_servicer(server, suggestion, pb)
    if early_stopping is not None:
        add_servicer(server, early_stopping, pb, judging)
    if db_manager is not None:
        add_servicer(server, db_manager, pb)
    server.add_generic_rpc_handlers(handlers)
    with TemporaryDirectory(prefix="katib-test-") as directory:
        address = f"unix:{Path(directory) / 's'}"
        server.add_insecure_port(address)
        server.start()
        try:
            yield address
        finally:
            server.stop(None).wait(60)
