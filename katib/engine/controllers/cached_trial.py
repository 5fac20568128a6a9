"""Compact trials for the cache, so that a hundred thousand of them fit into memory.

The parts that an experiment's trials share are kept once. The rendered job, most of a trial, is kept only while the
trial waits to run; later its kind, its tries and its queue remain. A cached trial is thus for reading, for writing its
status, and for patching; code that recreates its job reads the stored object first.

A trial that has ended is packed: 0.7 KB instead of 5.0 KB including its cache entry, measured with 8,000 trials of
`benchmarks.many_trials`. Without `TrialDecoder.pack`, trials are not packed.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from copy import copy
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, json, structs

from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Object
from katib.model.job_kinds import queue_of
from katib.model.names import QUEUE_LABEL
from katib.model.trials import ACTIVE, trial_state
from katib.model.types import Trial, TrialState

_SHARED_FIELDS = ("objective", "metrics_collector", "early_stopping_rules")
_REMEMBERED_EXPERIMENTS = 500
"""More than run at once, yet bounded, so that deleted experiments are forgotten."""

_TRIES = ("backoffLimit", "completions", "parallelism")
"""Fields of a job that determine its number of tries, for display."""

_FAST, _RAW, _MEMORY = 1, -13, 5
"""Compression parameters for similar texts of 2 KB, without a checksum. Twice the effort saves less than a tenth."""


def packed(text: bytes, sample: bytes) -> bytes:
    """Return a text compressed against a sample, which `unpacked` needs, too."""
    compressor = zlib.compressobj(_FAST, zlib.DEFLATED, _RAW, _MEMORY, zdict=sample)
    return compressor.compress(text) + compressor.flush()


def unpacked(data: bytes, sample: bytes) -> bytes:
    return zlib.decompressobj(_RAW, zdict=sample).decompress(data)


class PackedTrial(Struct, frozen=True, gc=False):
    """A trial as compressed text: a few hundred bytes, as most of it equals another trial of the experiment."""

    data: bytes
    sample: bytes

    def __call__(self) -> Trial:
        return Trial.decode(json.decode(unpacked(self.data, self.sample)))


class _Known(Struct):
    """Samples of one experiment's trials: the last one that was read, and the text of one."""

    last: Trial | None = None
    sample: bytes = b""


class TrialDecoder:
    """Decodes trials for a cache. Used by one thread."""

    def __init__(self) -> None:
        self._experiments: OrderedDict[str, _Known] = OrderedDict()

    def __call__(self, obj: Object) -> Trial:
        """Return the trial; parts equal to those of the experiment's last trial are shared."""
        return self._shared(Trial.decode(obj))

    def adopt(self, struct: Trial) -> Trial:
        """Return a trial decoded by the store, in the same form; unchanged while it waits to run."""
        if trial_state(struct) is TrialState.PENDING:
            return struct
        trial = copy(struct)
        _exchange(trial, "spec", copy(struct.spec))
        _exchange(trial, "metadata", copy(struct.metadata))
        return self._shared(trial)

    def _shared(self, trial: Trial) -> Trial:
        experiment = self._experiment_of(trial)
        last, experiment.last = experiment.last, trial
        if last is not None:
            for name in _SHARED_FIELDS:
                if getattr(last.spec, name) == getattr(trial.spec, name):
                    _exchange(trial.spec, name, getattr(last.spec, name))
            if last.metadata.owner_references == trial.metadata.owner_references:
                _exchange(trial.metadata, "owner_references", last.metadata.owner_references)
        if trial_state(trial) is not TrialState.PENDING:
            _exchange(trial.spec, "run_spec", _kind_of_job(trial.spec.run_spec or {}))
        return trial

    def pack(self, obj: Object, trial: Trial) -> PackedTrial | None:
        """Return the packed form of a trial that has ended; None for a trial that is still read and changed."""
        if trial_state(trial) in ACTIVE:
            return None
        spec = obj.get("spec", {})
        short = {**obj, "spec": {**spec, "runSpec": _kind_of_job(spec.get("runSpec") or {})}}
        try:
            text = json.encode(short)
        except UnicodeEncodeError:  # an unpaired surrogate in a program's output
            return None
        experiment = self._experiment_of(trial)
        experiment.sample = experiment.sample or text
        return PackedTrial(packed(text, experiment.sample), experiment.sample)

    def _experiment_of(self, trial: Trial) -> _Known:
        """Return the samples of a trial's experiment; drop those of experiments not seen recently."""
        owner = trial.metadata.owner_references[0].uid if trial.metadata.owner_references else ""
        known = self._experiments.setdefault(owner, _Known())
        self._experiments.move_to_end(owner)
        if len(self._experiments) > _REMEMBERED_EXPERIMENTS:
            self._experiments.popitem(last=False)
        return known


def _kind_of_job(job: Object) -> dict[str, Any]:
    """Return the parts of a job that are kept: its kind, its tries, and its queue."""
    kept: dict[str, Any] = {"apiVersion": job.get("apiVersion", ""), "kind": job.get("kind", "")}
    spec = job.get("spec")
    if isinstance(spec, dict) and (tries := {name: spec[name] for name in _TRIES if name in spec}):
        kept["spec"] = tries
    return {**kept, "metadata": {"labels": {QUEUE_LABEL: queue}}} if (queue := queue_of(job)) else kept


_exchange = structs.force_setattr
"""Replaces a part of a model with no other reader yet, in place: a copy would double the cost."""


@dataclass(frozen=True, slots=True)
class TakenNames:
    """The names of a namespace's trials, looked up in the cache one by one."""

    trials: Informer[Trial]
    namespace: str

    def __contains__(self, name: object) -> bool:
        return self.trials.has(Key(self.namespace, str(name)))
