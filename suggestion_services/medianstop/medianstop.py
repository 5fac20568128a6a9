"""The gRPC service in front of the median stopping rule: reads logs, remembers averages, answers with one rule."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from katib.errors import FieldError, InvalidError
from katib.rpc._generated import api_pb2 as pb
from katib.rpc._generated import api_pb2_grpc
from katib.rpc.db_manager_client import DbManagerClient
from suggestion_services.base.servicer import answered
from suggestion_services.medianstop.rule import MedianRule
from suggestion_services.medianstop.trial_status import TrialStatuses, in_cluster

_MAX_SESSIONS = 64  # far more than one machine tunes at once; bounds the memory of a service that lives for months
_READERS = 4  # logs read at once after a restart, when all are due

_Ended = tuple[str, str, str]
"""Name, start and end of a trial: an experiment that is deleted and run anew has trials of the same names."""


class _Session:
    """Running averages of one experiment for one objective and start step. All of it is a cache of the log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._averages: dict[_Ended, float | None] = {}

    def averages(self, rule: MedianRule, trials: Sequence[pb.Trial], log: DbManagerClient, metric: str) -> list[float]:
        """Return the averages of these trials, reading the logs of those that are new.

        Raises:
            UnavailableError: The log cannot be reached; what was read before is kept for the next attempt.
        """
        keys = {(t.name, t.status.start_time, t.status.completion_time): t.name for t in trials}
        with self._lock:
            known = {key: self._averages[key] for key in keys if key in self._averages}
            self._averages = known
            due = [(key, name) for key, name in keys.items() if key not in known]
            with ThreadPoolExecutor(_READERS, thread_name_prefix="log") as readers:
                known.update(readers.map(lambda new: (new[0], _average(rule, log, new[1], metric)), due))
            return [average for average in known.values() if average is not None]


class MedianStop(api_pb2_grpc.EarlyStoppingServicer):
    """Serves any number of experiments. Thread-safe; experiments do not wait for each other.

    Which trials count: those that SUCCEEDED. Failed trials have no curve to learn from. Early stopped ones have one,
    but they were stopped for being worse than the median: they stay out, as in Katib and in the paper's wording
    (completed trials). So the bar rises a little as the search goes on.

    Args:
        statuses: Changes the status of trials; by default those of the namespace of this pod, where it runs in one.
    """

    def __init__(self, statuses: TrialStatuses | None = None) -> None:
        self._statuses = statuses or in_cluster()
        self._lock = threading.Lock()
        self._sessions: OrderedDict[tuple[str, str, str, int], _Session] = OrderedDict()
        self._logs: dict[str, DbManagerClient] = {}

    def ValidateEarlyStoppingSettings(  # noqa: N802  # the wire's name
        self, request: pb.ValidateEarlyStoppingSettingsRequest, context: grpc.ServicerContext
    ) -> pb.ValidateEarlyStoppingSettingsReply:
        """Tell whether the settings can be used."""
        with answered(context):
            MedianRule.of(request.early_stopping)
            return pb.ValidateEarlyStoppingSettingsReply()

    def GetEarlyStoppingRules(  # noqa: N802  # the wire's name
        self, request: pb.GetEarlyStoppingRulesRequest, context: grpc.ServicerContext
    ) -> pb.GetEarlyStoppingRulesReply:
        """Return the rule for the coming trials, none while too few trials have succeeded."""
        with answered(context):
            rule = MedianRule.of(request.experiment.spec.early_stopping)
            succeeded = [t for t in request.trials if t.status.condition == pb.TrialStatus.SUCCEEDED]
            if len(succeeded) < rule.min_trials_required:
                return pb.GetEarlyStoppingRulesReply()
            objective = request.experiment.spec.objective
            metric, address = objective.objective_metric_name, request.db_manager_address
            session = self._session((request.experiment.name, metric, address, rule.start_step))
            threshold = rule.threshold(session.averages(rule, succeeded, self._log(address), metric))
            if threshold is None:
                return pb.GetEarlyStoppingRulesReply()
            return pb.GetEarlyStoppingRulesReply(early_stopping_rules=[_message(rule, objective, threshold)])

    def SetTrialStatus(  # noqa: N802  # the wire's name
        self, request: pb.SetTrialStatusRequest, context: grpc.ServicerContext
    ) -> pb.SetTrialStatusReply:
        """Write into a Trial that it was stopped early.

        In a cluster the sidecar asks for this, and the controllers wait for it. On one machine there is nothing to do:
        the collector's verdict ends the job, and the trial controller sets the condition.
        """
        with answered(context):
            if self._statuses is not None:
                self._statuses.stop(request.trial_name)
            return pb.SetTrialStatusReply()

    def _session(self, key: tuple[str, str, str, int]) -> _Session:
        with self._lock:
            session = self._sessions.setdefault(key, _Session())
            self._sessions.move_to_end(key)
            while len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
            return session

    def _log(self, address: str) -> DbManagerClient:
        if ":" not in address:
            cause = f'"{address}" is no address'
            raise InvalidError([FieldError("dbManagerAddress", cause, "write host:port or unix:/path", "address")])
        with self._lock:
            if address not in self._logs:
                self._logs[address] = DbManagerClient(address)
            return self._logs[address]


def _average(rule: MedianRule, log: DbManagerClient, trial: str, metric: str) -> float | None:
    try:
        readings, _ = log.read(trial, metric_name=metric)
    except InvalidError:
        return None  # a log with an unreadable time has no order to average in
    return rule.average(reading.value for reading in readings)


def _message(rule: MedianRule, objective: pb.ObjectiveSpec, threshold: float) -> pb.EarlyStoppingRule:
    worse = pb.LESS if objective.type == pb.MAXIMIZE else pb.GREATER
    return pb.EarlyStoppingRule(
        name=objective.objective_metric_name, value=str(threshold), comparison=worse, start_step=rule.start_step
    )
