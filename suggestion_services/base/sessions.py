"""The experiments of a process, each with its algorithm, decoded trials and lock.

All of it is a cache: beyond the limit the least recently used experiment is evicted, and its next request decodes its
trials again.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError

from katib.errors import invalid
from katib.model.types import ObjectiveSpec
from katib.wire.rpc._generated import api_pb2
from katib.wire.rpc._generated.suggestions_pb2 import UndecodedSuggestionsRequest
from suggestion_services.base.algorithm import Algorithm, PastTrial
from suggestion_services.base.messages import past_trial

MAX_SESSIONS = 16  # with ten thousand trials each they take half a gigabyte; one machine seldom tunes more at once

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SearchSession:
    """The state of one experiment. Hold `lock` around everything else."""

    def __init__(self, algorithm: Algorithm, objective: ObjectiveSpec) -> None:
        self.lock = threading.Lock()
        self.algorithm = algorithm
        self._earlier = _DecodedTrials("earlier_trials", objective, is_earlier=True)
        self._own = _DecodedTrials("trials", objective, is_earlier=False)

    def history(self, request: UndecodedSuggestionsRequest) -> list[PastTrial]:
        """Return the earlier trials and then the experiment's own, in their order; the last of equally named ones.

        A trial with the same bytes as in the previous request is the same object, so that the algorithm can detect new
        trials by identity.

        Raises:
            InvalidError: A trial cannot be decoded.
        """
        own = [*request.trials, *request.unmeasured_trials]
        return [*self._earlier.read(request.earlier_trials), *self._own.read(own)]


class _DecodedTrials:
    """Cache of the last request's trials in one field, by their bytes."""

    def __init__(self, path: str, objective: ObjectiveSpec, *, is_earlier: bool) -> None:
        self._path = path
        self._objective = objective
        self._is_earlier = is_earlier
        self._known: dict[bytes, tuple[_Place, PastTrial]] = {}

    def read(self, messages: Iterable[bytes]) -> list[PastTrial]:
        """Return the trials of a request, sorted by their assignments and results, not by their names."""
        texts = list(messages)
        found = list(map(self._known.get, texts))
        trials = [self._decode(i, texts[i]) if known is None else known for i, known in enumerate(found)]
        self._known = dict(zip(texts, trials, strict=True))
        by_name = {trial.name: (place, trial) for place, trial in trials}
        return [trial for _, trial in sorted(by_name.values(), key=lambda known: known[0])]

    def _decode(self, i: int, text: bytes) -> tuple[_Place, PastTrial]:
        try:
            message = api_pb2.Trial.FromString(text)
        except DecodeError:
            path, cause = f"{self._path}[{i}]", f"these {len(text)} bytes are not a Trial of api.v1.beta1"
            raise invalid(path, cause, "send trials as this version of the contract has them", "trial-bytes") from None
        trial = past_trial(message, self._objective, is_earlier=self._is_earlier)
        return place_of(trial), trial


_Place = tuple[bytes, str, str]


def place_of(trial: PastTrial) -> _Place:
    """Return the sort key of a trial.

    A hash of the assignments comes first, since algorithms may weigh the last trials more and these must not be alike.
    """
    tried = repr([*trial.assignments.items()]).encode()
    return hashlib.sha256(tried).digest(), repr((trial.outcome, trial.values)), trial.name


class LatestUsed(Generic[Key, Value]):
    """Least recently used cache of limited size. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key, create: Callable[[], Value]) -> Value:
        """Return the value of a key; created if missing."""
        with self._lock:
            value = self._values.get(key)
        if value is None:
            value = create()  # outside the lock: it may import a library
        with self._lock:
            value = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            while len(self._values) > self._limit:
                self._values.popitem(last=False)
        return value


def session_key(experiment: api_pb2.Experiment) -> tuple[str, bytes]:
    """Return the name of an experiment and a fingerprint of its definition; a changed definition ends the session.

    Equal experiments of two namespaces share a session, which does no harm.
    """
    return experiment.name, experiment.spec.SerializeToString(deterministic=True)
