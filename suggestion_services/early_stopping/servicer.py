"""The gRPC services in front of an early stopping algorithm: Katib's `EarlyStopping`, and `EarlyStoppingJudge`.

The second one is not part of Katib. A caller that only knows the first, such as Katib's controller, gets the static
rule of the algorithm, often none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from katib.errors import InvalidError, UnavailableError, invalid
from katib.model.algorithms import AlgorithmInfo
from katib.model.metrics import ObservationReader
from katib.model.types import AlgorithmSetting
from katib.model.wording import one_of
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import early_stopping_pb2 as judging
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient
from suggestion_services.base.servicer import answered
from suggestion_services.base.sessions import LatestUsed
from suggestion_services.base.settings import LiteralError, Settings
from suggestion_services.early_stopping.algorithm import (
    StoppingAlgorithm,
    StoppingProblem,
    StoppingVerdict,
    settings_of,
)
from suggestion_services.early_stopping.curves import CurvePoint, CurveState
from suggestion_services.early_stopping.readings import Curves, JudgedTrial
from suggestion_services.early_stopping.replay import Recording, replay
from suggestion_services.early_stopping.trial_status import TrialStatuses, in_cluster

NAME_PATH = "spec.earlyStopping.algorithmName"

MAX_SESSIONS = 64  # far more than one machine tunes at once; bounds the memory of a long-running service

_LOCK_SECONDS = 2.0  # a request that arrives during a slow one must not block a thread of the server

_STANDINGS = {
    pb.TrialStatus.CREATED: CurveState.RUNNING,
    pb.TrialStatus.RUNNING: CurveState.RUNNING,
    pb.TrialStatus.SUCCEEDED: CurveState.SUCCEEDED,
    pb.TrialStatus.EARLYSTOPPED: CurveState.STOPPED,
}


@dataclass(slots=True)
class _StoppingSession:
    """The state of one experiment. Hold `lock` around everything else."""

    algorithm: StoppingAlgorithm
    curves: Curves
    lock: threading.Lock = field(default_factory=threading.Lock)
    judged_version: int = -1
    verdicts: list[StoppingVerdict] = field(default_factory=list)

    def judge(
        self, trials: Collection[JudgedTrial], log: ObservationReader, context: grpc.ServicerContext
    ) -> list[StoppingVerdict]:
        """Return the verdicts by the present log; without new readings the former ones.

        Raises:
            UnavailableError: The log cannot be reached, or reading takes longer than the caller waits.
        """
        if not self.lock.acquire(timeout=_LOCK_SECONDS):
            raise UnavailableError("the previous request for this experiment is still running; ask again")
        try:
            curves = self.curves.refresh(trials, log, context.is_active)
            if self.curves.version != self.judged_version:
                self.verdicts = self.algorithm.judge(curves)
                self.judged_version = self.curves.version
            return self.verdicts
        finally:
            self.lock.release()


class StoppingServicer:
    """Serves one algorithm to any number of experiments. Thread-safe; experiments do not wait for each other.

    Args:
        info: The served algorithm; requests for another name are refused.
        statuses: Changes the status of trials; by default those of this pod's namespace, if it runs in one.
        credentials: Credentials for the DB manager; by default those of this pod.
    """

    def __init__(
        self,
        info: AlgorithmInfo,
        load: Callable[[], type[StoppingAlgorithm]],
        *,
        statuses: TrialStatuses | None = None,
        credentials: DbManagerCredentials | None = None,
    ) -> None:
        self._info = info
        self._load = load
        self._credentials = credentials or DbManagerCredentials.of(os.environ)
        self._statuses = statuses or in_cluster()
        self._lock = threading.Lock()
        self._sessions = LatestUsed[tuple[str, str, str, bytes], _StoppingSession](MAX_SESSIONS)
        self._logs: dict[str, DbManagerClient] = {}

    def ValidateEarlyStoppingSettings(
        self, request: pb.ValidateEarlyStoppingSettingsRequest, context: grpc.ServicerContext
    ) -> pb.ValidateEarlyStoppingSettingsReply:
        with answered(context):
            self._settings(request.early_stopping)
            return pb.ValidateEarlyStoppingSettingsReply()

    def GetEarlyStoppingRules(
        self, request: pb.GetEarlyStoppingRulesRequest, context: grpc.ServicerContext
    ) -> pb.GetEarlyStoppingRulesReply:
        """Return the rule that is independent of other trials; most algorithms have none."""
        with answered(context):
            algorithm = self._algorithm(request.experiment.spec)
            rule = algorithm.static_rule()
            if rule is None:
                return pb.GetEarlyStoppingRulesReply()
            value = algorithm.problem.value_of(rule.cost)
            message = rule_message(request.experiment.spec.objective, value, rule.start_step)
            return pb.GetEarlyStoppingRulesReply(early_stopping_rules=[message])

    def SetTrialStatus(
        self, request: pb.SetTrialStatusRequest, context: grpc.ServicerContext
    ) -> pb.SetTrialStatusReply:
        """Set the condition EarlyStopped of a Trial.

        In a cluster the sidecar requests this, and the controllers wait for it. On one machine there is nothing to do:
        the collector's verdict ends the job, and the trial controller sets the condition.
        """
        with answered(context):
            if self._statuses is not None:
                self._statuses.stop(request.trial_name)
            return pb.SetTrialStatusReply()

    def Judge(self, request: judging.JudgeRequest, context: grpc.ServicerContext) -> judging.JudgeReply:
        """Return the running trials to stop, by the present log of all trials."""
        with answered(context):
            session = self._session(request)
            trials = {trial.name: trial for trial in map(_judged, request.trials) if trial is not None}
            verdicts = session.judge(trials.values(), self._log(request.db_manager_address), context)
            return judging.JudgeReply(verdicts=map(_message, verdicts))

    def Replay(self, request: judging.ReplayRequest, context: grpc.ServicerContext) -> judging.ReplayReply:
        """Return the trials of a finished experiment that would have been stopped, in order of time."""
        with answered(context):
            algorithm = self._algorithm(request.experiment.spec)
            sign = -1.0 if algorithm.problem.maximize else 1.0
            found = replay(algorithm, (_recording(curve, sign) for curve in request.curves))
            return judging.ReplayReply(verdicts=[_message(one.verdict, one.time_micros) for one in found])

    def _settings(self, spec: pb.EarlyStoppingSpec) -> Settings:
        if spec.algorithm_name not in ("", self._info.name):  # Katib's services do not require a name
            cause = f"unknown algorithm name {spec.algorithm_name}"
            raise InvalidError([LiteralError(NAME_PATH, cause, f"use {self._info.name}", "algorithm-unknown")])
        given = [AlgorithmSetting(name=setting.name, value=setting.value) for setting in spec.algorithm_settings]
        return settings_of(self._load(), self._info, given)

    def _algorithm(self, spec: pb.ExperimentSpec) -> StoppingAlgorithm:
        settings = self._settings(spec.early_stopping)
        metric, maximize = spec.objective.objective_metric_name, spec.objective.type == pb.MAXIMIZE
        return self._load()(StoppingProblem(metric, maximize=maximize, settings=settings))

    def _session(self, request: judging.JudgeRequest) -> _StoppingSession:
        experiment = request.experiment
        spec = experiment.spec
        what = pb.ExperimentSpec(objective=spec.objective, early_stopping=spec.early_stopping)
        where = (request.namespace, experiment.name, request.db_manager_address)
        key = (*where, what.SerializeToString(deterministic=True))

        def create() -> _StoppingSession:
            algorithm = self._algorithm(spec)
            problem = algorithm.problem
            return _StoppingSession(algorithm, Curves(problem.metric, maximize=problem.maximize))

        return self._sessions.get(key, create)

    def _log(self, address: str) -> DbManagerClient:
        if ":" not in address:
            cause = f'"{address}" is not an address'
            raise invalid("dbManagerAddress", cause, "write host:port or unix:/path", "address")
        with self._lock:
            if address not in self._logs:
                self._logs[address] = DbManagerClient(address, credentials=self._credentials)
            return self._logs[address]


_CALLS = ("ValidateEarlyStoppingSettings", "GetEarlyStoppingRules", "SetTrialStatus", "Judge", "Replay")


class ManyStoppingServicer:
    """Serves several algorithms; each request is answered by the one that its experiment names.

    So one image serves all of them: a KatibConfig cannot pass arguments to an early stopping service.

    Args:
        servicers: By name of the algorithm. The first one serves requests without a name, as Katib's tests send them,
            and requests that all answer alike.
    """

    def __init__(self, servicers: Mapping[str, StoppingServicer]) -> None:
        self._servicers = servicers
        for call in _CALLS:
            setattr(self, call, partial(self._answer, call))

    def _answer(self, call: str, request: Any, context: grpc.ServicerContext) -> Any:
        match request:
            case pb.SetTrialStatusRequest():
                name = ""
            case pb.ValidateEarlyStoppingSettingsRequest():
                name = request.early_stopping.algorithm_name
            case _:
                name = request.experiment.spec.early_stopping.algorithm_name
        with answered(context):
            found = self._servicers.get(name or next(iter(self._servicers)))
            if found is None:
                cause, remedy = f"unknown algorithm name {name}", one_of(self._servicers)
                raise InvalidError([LiteralError(NAME_PATH, cause, remedy, "algorithm-unknown")])
        return getattr(found, call)(request, context)


def rule_message(objective: pb.ObjectiveSpec, value: float, start_step: int) -> pb.EarlyStoppingRule:
    """Return a rule as a message: a trial worse than a value of the objective at a reading is stopped."""
    worse = pb.LESS if objective.type == pb.MAXIMIZE else pb.GREATER
    return pb.EarlyStoppingRule(
        name=objective.objective_metric_name, value=str(value), comparison=worse, start_step=start_step
    )


def _judged(message: pb.Trial) -> JudgedTrial | None:
    """Convert a trial; None for one that failed, was killed or cannot be read."""
    standing = _STANDINGS.get(message.status.condition)
    return None if standing is None else JudgedTrial(message.name, message.status.start_time, standing)


def _message(verdict: StoppingVerdict, time_micros: int = 0) -> judging.Verdict:
    return judging.Verdict(
        trial_name=verdict.trial_name,
        reason=verdict.reason,
        value=verdict.value,
        resource=verdict.resource,
        time_micros=time_micros,
    )


def _recording(curve: judging.Curve, sign: float) -> Recording:
    points = [(p.time_micros, CurvePoint(p.resource, sign * p.value)) for p in curve.points]
    return Recording(curve.trial_name, points, succeeded=not curve.unfinished, by_number=curve.without_steps)
