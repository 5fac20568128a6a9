"""What a diagnosis rests on, and what things are called where the experiment runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from katib.model.metrics import MetricLog
from katib.model.types import Experiment, Suggestion, Trial
from katib.service.tuning.service import DEFAULT_NAMESPACE, Json, RecordedEvent


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
        runs: Whether a program of it is known to run, whatever is stored about that.
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
    runs: bool = False
    attempt: int = 1
    exit_code: int | None = None
    signal: str = ""
    out_of_memory: bool = False
    log_tail: tuple[str, ...] = ()
    log_container: str = ""
    program: str = ""
    in_image: bool = False
    pods: tuple[Json, ...] = ()


_IN_IMAGES: Mapping[str, Any] = {
    "module": "Install the module in the image that the template names, or name another image.",
    "file": "Put the file into the image or a volume of the template, or name it by its full path.",
    "permission": "Give the container of the template the right to it, by runAsUser or fsGroup for example.",
}


@dataclass(frozen=True, slots=True)
class Place:
    """What things are called in one home, so that every remedy can be followed there.

    Attributes:
        idle: Why nothing progresses while no controller is at work; follows `because` or `and`.
        start: How to have one at work again.
        disk: Whose disk has to be freed when it is full.
        database: Where to look when the database does not answer.
        silence: What to look at when no cause is known.
        command: Where a command that was not found has to be.
        capacity: How a job that waits for room gets it.
        module: What to do about a Python module that a trial did not find.
        file: What to do about a file that it did not find.
        workspace: Where relative paths of a command start, with `{}` for the directory; empty where it is the image's.
        permission: What to do about something that it was not allowed to do.
        release: How an object that is being deleted goes where no controller comes back; empty where one always can.
        needs_annotation: Whether only an OptimizationJob with an annotation for its algorithm is worked on.
        default_namespace: The namespace that a command means which names none; empty when that depends on the caller.
    """

    idle: str
    start: str
    disk: str
    database: str
    silence: str
    command: str
    capacity: str
    module: str = _IN_IMAGES["module"]
    file: str = _IN_IMAGES["file"]
    workspace: str = ""
    permission: str = _IN_IMAGES["permission"]
    release: str = ""
    needs_annotation: bool = False
    default_namespace: str = ""

    def in_images(self) -> Place:
        """Return the words for a trial that ran in an image."""
        return replace(self, **_IN_IMAGES, workspace="")


LOCAL = Place(
    idle="no engine is running on this data directory",
    start="Start `katib serve`, or `katib run` with the same file: both go on where it stopped.",
    disk="Free space on the disk of the data directory; the work goes on by itself.",
    database="Look for another process that locks it; the work goes on by itself.",
    silence="If this lasts longer than a minute, restart with -v and look at the messages.",
    command="Install the command on this machine, or give its full path in the template.",
    capacity="Wait for running trials to end, or lower resources.requests in the template.",
    module=(
        "Install the module there, or choose another Python: activate its environment before you start katib, or "
        "write its full path in the template's command."
    ),
    file="Put the file there, or write its full path in the template.",
    workspace="Relative paths start in {}, the directory of the experiment's file.",
    permission="Give your account the right to it: trials run with the rights of the user who runs katib.",
    default_namespace=DEFAULT_NAMESPACE,
)
"""One machine with a data directory."""


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
        progress: How far a trial is in percent, by its name, where its program posts that.
        readings_error: Why readings cannot be had now; empty when they can.
        controllers_running: False when objects are read while no controller works on them.
        disk_is_full: Whether nothing can be stored for want of room.
        place: What things are called where the experiment runs.
    """

    now: datetime
    experiment: Experiment | None = None
    suggestion: Suggestion | None = None
    trials: Sequence[Trial] = ()
    best: Trial | None = None
    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    services: Sequence[ServiceFacts] = ()
    events: Sequence[RecordedEvent] = ()
    readings: Mapping[str, MetricLog] = field(default_factory=dict)
    reading_counts: Mapping[str, int] = field(default_factory=dict)
    progress: Mapping[str, str] = field(default_factory=dict)
    readings_error: str = ""
    controllers_running: bool = True
    disk_is_full: bool = False
    place: Place = LOCAL
