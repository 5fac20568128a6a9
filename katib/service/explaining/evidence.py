"""Evidence of a diagnosis, and the terms of the place of the experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from katib.model.metrics import MetricLog
from katib.model.types import Experiment, Suggestion, Trial
from katib.service.tuning.service import DEFAULT_NAMESPACE, Confirmation, Json, RecordedEvent


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """One suggestion or early stopping service, as reported by its supervisor.

    Attributes:
        state: `starting`, `ready` or `failing`.
        attempts: Number of starts for this experiment, the first one included.
        last_error: Why the last attempt failed, one line; empty if none failed.
        address: Its address, or the command that starts it.
        remedy: Remedy for a failing one, a sentence; empty for the usual one.
    """

    algorithm: str
    state: str
    attempts: int = 1
    last_error: str = ""
    address: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """State of a trial's job: the object, and its runner's report.

    Attributes:
        waiting: Why nothing of it runs, as a clause, such as `its job waits for 2 cpu; 0 of 2 cpu are free`; empty if
            it does not wait.
        remedy: Remedy for `waiting`, a sentence; empty if it waits for capacity.
        runs: Whether a program of it is known to run, regardless of the stored state.
        attempt: The current or last attempt, from 1.
        exit_code: Exit code of the primary container's last run.
        signal: Name of the signal that ended it, such as `SIGKILL`.
        out_of_memory: Whether it was killed for exceeding its memory limit.
        log_tail: Last lines of its output; of the failed replica if it has several.
        log_container: Container of these lines if not the primary one.
        program: Full path of the primary container's program; empty if unknown.
        in_image: Whether it ran in its image, on one machine where others run as processes.
        pods: Its pods, oldest first.
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
class HomeTerms:
    """Terms and remedies of one home, so that every remedy can be followed there.

    Attributes:
        idle: Why nothing progresses while no controller runs; follows `because` or `and`.
        start: Remedy if no controller runs.
        database: Remedy if the database does not answer.
        silence: Remedy if no cause is known.
        command: Remedy for a command that was not found.
        capacity: Remedy for a job that waits for capacity.
        module: Remedy for a missing Python module.
        workspace: Sentence on the start of a command's relative paths, with `{}` for the directory; empty if it is the
            image's.
        release: Remedy for an object whose deletion needs a controller that never returns; empty if one always can.
        needs_annotation: Whether only an OptimizationJob with an annotation for its algorithm is reconciled.
        default_namespace: Namespace of commands that name none; empty if that depends on the caller.
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

    def in_images(self) -> HomeTerms:
        """Return the terms for a trial that ran in an image."""
        return replace(self, **_IN_IMAGES, workspace="")


LOCAL = HomeTerms(
    idle="no engine is running on this data directory",
    start="Start `katib serve`, or `katib run` with the same file: both continue where it stopped.",
    disk="Free space on the disk of the data directory; the work continues by itself.",
    database="Look for another process that locks it; the work continues by itself.",
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
    """Evidence about one experiment at one time. Only `now` and the subject itself are required.

    Attributes:
        experiment: The Experiment; for a trial, its experiment if it still exists.
        trials: A sample: all active trials and the newest ended ones. Counts are taken from the experiment's status.
        jobs: States of jobs by trial name, for active and failed trials.
        services: Suggestion and early stopping services of the experiment.
        events: Events of the experiment and its trials, oldest first.
        readings: Newest reading of the objective metric, by trial name.
        reading_counts: Number of readings of the objective metric, by trial name.
        progress: Progress in percent by trial name, if the program posts it.
        readings_error: Why readings are unavailable; empty if they are available.
        controllers_running: False if no controller works on the objects.
        confirmation: Findings about its best configurations, run again; None without any.
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
    confirmation: Confirmation | None = None
    place: HomeTerms = LOCAL
