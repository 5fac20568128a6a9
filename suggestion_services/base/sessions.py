"""The experiments that one process serves, each with its algorithm, its decoded trials and its lock.

All of it is a cache: the least recently used experiment is forgotten when there are too many, and comes back from its
next request at the price of decoding its trials once more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from katib.api.types import ObjectiveSpec
from katib.rpc._generated import api_pb2
from suggestion_services.base.algorithm import Algorithm, PastTrial
from suggestion_services.base.messages import past_trial

_MAX_SESSIONS = 16  # with ten thousand trials each they take half a gigabyte; one machine seldom tunes more at once


class Session:
    """One experiment in work. Hold `lock` around everything else."""

    def __init__(self, algorithm: Algorithm, objective: ObjectiveSpec) -> None:
        self.lock = threading.Lock()
        self.algorithm = algorithm
        self._objective = objective
        self._decoded: dict[tuple[bool, bytes], PastTrial] = {}

    def history(self, request: api_pb2.GetSuggestionsRequest) -> list[PastTrial]:
        """Return the earlier trials and then the experiment's own, sorted by name; of equally named ones, the last.

        A trial that was in the previous request, byte for byte, is the same object again, so that the algorithm can
        tell at a glance what is new.
        """
        old, new = self._decoded, {}
        own = (*request.trials, *request.unmeasured_trials)
        for is_earlier, messages in ((True, request.earlier_trials), (False, own)):
            for message in messages:
                key = is_earlier, message.SerializeToString()
                trial = old.get(key)
                new[key] = past_trial(message, self._objective, is_earlier=is_earlier) if trial is None else trial
        self._decoded = new
        by_name = {(not trial.is_earlier, trial.name): trial for trial in new.values()}
        return [by_name[name] for name in sorted(by_name)]


class Sessions:
    """Sessions by experiment name and fingerprint of what is searched. Thread-safe."""

    def __init__(self, limit: int = _MAX_SESSIONS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._sessions: OrderedDict[tuple[str, bytes], Session] = OrderedDict()

    def get(self, experiment: api_pb2.Experiment, create: Callable[[], Session]) -> Session:
        """Return the session of the experiment, a new one when it is unknown or its definition changed.

        Equally named experiments of two namespaces share a session if they are equal, which does no harm.
        """
        key = experiment.name, _fingerprint(experiment.spec)
        with self._lock:
            session = self._sessions.get(key)
        if session is None:
            session = create()  # outside the lock: it may import a library
        with self._lock:
            session = self._sessions.setdefault(key, session)
            self._sessions.move_to_end(key)
            while len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)
        return session


def _fingerprint(spec: api_pb2.ExperimentSpec) -> bytes:
    return spec.SerializeToString(deterministic=True)
