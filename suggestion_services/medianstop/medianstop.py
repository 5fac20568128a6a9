"""The gRPC service of the median stopping rule: reads logs, caches averages, answers with one rule."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from katib.errors import InvalidError
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient
from suggestion_services.algorithms import find_entry
from suggestion_services.base.servicer import answered
from suggestion_services.base.sessions import LatestUsed
from suggestion_services.early_stopping.servicer import MAX_SESSIONS, StoppingServicer, rule_message
from suggestion_services.early_stopping.trial_status import TrialStatuses
from suggestion_services.medianstop.rule import NAME, MedianRule, MedianStopping

_READERS = 4  # logs read at once after a restart, when all are needed

_Ended = tuple[str, str, str]
"""Name, start and end of a trial: an experiment that is deleted and run again has trials of the same names."""


class _Averages:
    """Running averages of one experiment for one objective and start step. All of it is a cache of the log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._averages: dict[_Ended, float | None] = {}

    def averages(self, rule: MedianRule, trials: Sequence[pb.Trial], log: DbManagerClient, metric: str) -> list[float]:
        """Return the averages of these trials, reading the logs of those that are new.

        Raises:
            UnavailableError: The log cannot be reached; averages so far are kept for the next attempt.
        """
        keys = {(t.name, t.status.start_time, t.status.completion_time): t.name for t in trials}
        with self._lock:
            known = {key: self._averages[key] for key in keys if key in self._averages}
            self._averages = known
            due = [(key, name) for key, name in keys.items() if key not in known]
            with ThreadPoolExecutor(_READERS, thread_name_prefix="log") as readers:
                known.update(readers.map(lambda new: (new[0], _average(rule, log, new[1], metric)), due))
            return [average for average in known.values() if average is not None]


class MedianStop(StoppingServicer):
    """Answers Katib's calls as Katib's service of this name does, and judges running trials by the same rule.

    Only trials that SUCCEEDED count. Failed trials have no curve to learn from. Early stopped ones have one, but were
    stopped for being worse than the median: they are left out, as in Katib and in the paper's wording (completed
    trials). So the bar rises a little during the search.

    Args:
        statuses: As for any early stopping service.
        credentials: As for any early stopping service.
    """

    def __init__(self, statuses: TrialStatuses | None = None, credentials: DbManagerCredentials | None = None) -> None:
        info = find_entry(NAME, early_stopping=True).info
        super().__init__(info, lambda: MedianStopping, statuses=statuses, credentials=credentials)
        self._averages = LatestUsed[tuple[str, str, str, int], _Averages](MAX_SESSIONS)

    def ValidateEarlyStoppingSettings(
        self, request: pb.ValidateEarlyStoppingSettingsRequest, context: grpc.ServicerContext
    ) -> pb.ValidateEarlyStoppingSettingsReply:
        """Validate the settings, with Katib's messages."""
        with answered(context):
            MedianRule.of(request.early_stopping)
            return pb.ValidateEarlyStoppingSettingsReply()

    def GetEarlyStoppingRules(
        self, request: pb.GetEarlyStoppingRulesRequest, context: grpc.ServicerContext
    ) -> pb.GetEarlyStoppingRulesReply:
        """Return the rule for new trials; none while too few trials have succeeded."""
        with answered(context):
            rule = MedianRule.of(request.experiment.spec.early_stopping)
            succeeded = [t for t in request.trials if t.status.condition == pb.TrialStatus.SUCCEEDED]
            if len(succeeded) < rule.min_trials_required:
                return pb.GetEarlyStoppingRulesReply()
            objective = request.experiment.spec.objective
            metric, address = objective.objective_metric_name, request.db_manager_address
            known = self._averages.get((request.experiment.name, metric, address, rule.start_step), _Averages)
            threshold = rule.threshold(known.averages(rule, succeeded, self._log(address), metric))
            if threshold is None:
                return pb.GetEarlyStoppingRulesReply()
            message = rule_message(objective, threshold, rule.start_step)
            return pb.GetEarlyStoppingRulesReply(early_stopping_rules=[message])


def _average(rule: MedianRule, log: DbManagerClient, trial: str, metric: str) -> float | None:
    try:
        readings = log.read(trial, metric_name=metric)
    except InvalidError:
        return None  # unreadable times have no order to average in
    return rule.average(reading.value for reading in readings)
