"""What a diagnosis rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from katib.api.metrics import MetricLog
from katib.diagnosis.place import LOCAL, Place
from katib.tuning.service import Json, RecordedEvent


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """One suggestion or early stopping service, as its starter sees it.

    Attributes:
        algorithm: Name of the algorithm.
        state: `starting`, `ready` or `failing`.
        attempts: How often it was started for this experiment; 1 is the first try.
        last_error: Why the last try failed, one line; empty when none did.
        address: Where it listens, or the command that starts it.
        remedy: What to do about a failing one, a sentence; empty when nothing better than the usual is known.
    """

    algorithm: str
    state: str
    attempts: int = 1
    last_error: str = ""
    address: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of a trial's job: the object, and what its runner says.

    Attributes:
        job: The stored object; None when there is none.
        waiting: Why nothing of it runs, as a clause, such as `its job waits for 2 cpu; 0 of 2 cpu are free`; empty when
            it does not wait.
        remedy: What to do about `waiting`, a sentence; empty: it waits for room.
        attempt: Which try is running or ran last, from 1.
        exit_code: Of the primary container's last run.
        signal: Name of the signal that ended it, such as `SIGKILL`.
        out_of_memory: Whether it was ended because it took more memory than its limit.
        log_tail: Last lines of its output; of the replica that failed where one of several did.
        log_container: Which container printed them, where that is not the primary one.
        program: Full path of the program that the primary container ran; empty where that is not known.
        in_image: Whether it ran in its image, on one machine where others run as processes.
        pods: Its pods, the oldest first.
    """

    job: Json | None = None
    waiting: str = ""
    remedy: str = ""
    attempt: int = 1
    exit_code: int | None = None
    signal: str = ""
    out_of_memory: bool = False
    log_tail: tuple[str, ...] = ()
    log_container: str = ""
    program: str = ""
    in_image: bool = False
    pods: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything known about one experiment at one moment. Only `now` and the subject itself are required.

    Attributes:
        now: The moment.
        experiment: The Experiment; for a trial, its experiment if it still exists.
        suggestion: The Suggestion of the experiment.
        trials: A sample: all active trials and the newest ended ones. Counts are taken from the experiment's status.
        best: The best Trial.
        jobs: By trial name, for active and failed trials.
        services: Suggestion and early stopping services of the experiment.
        events: Notable moments of the experiment and its trials, oldest first.
        readings: Newest reading of the objective metric, by trial name.
        reading_counts: Number of readings of the objective metric, by trial name.
        readings_error: Why readings cannot be had now; empty when they can.
        controllers_running: False when objects are read while no controller works on them.
        disk_is_full: Whether nothing can be stored for want of room.
        place: What things are called where the experiment runs.
    """

    now: datetime
    experiment: Json | None = None
    suggestion: Json | None = None
    trials: Sequence[Json] = ()
    best: Json | None = None
    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    services: Sequence[ServiceFacts] = ()
    events: Sequence[RecordedEvent] = ()
    readings: Mapping[str, MetricLog] = field(default_factory=dict)
    reading_counts: Mapping[str, int] = field(default_factory=dict)
    readings_error: str = ""
    controllers_running: bool = True
    disk_is_full: bool = False
    place: Place = LOCAL
