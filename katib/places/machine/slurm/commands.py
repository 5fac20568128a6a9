"""The programs of Slurm, and their output. No threads, no state."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from katib.errors import InvalidError, TerminalError, UnavailableError, invalid

TIMEOUT_SECONDS: Final = 60.0
"""How long a command may take. `sbatch` itself waits and asks again while the controller does not answer."""

ONE_CLUSTER: Final = ("jobs are followed in one cluster", "set SLURM_CLUSTERS, which all commands of Slurm read")
"""Why no job goes to a cluster of its own, and the remedy."""

_OF_SCHEDULER: Final = "allocation failure: "
_WARNING: Final = re.compile(r"^(?:\w+: )?warning: (.*)", re.IGNORECASE | re.MULTILINE)
_CLUSTER: Final = re.compile(r"^ClusterName *= *([^\s(]+)", re.MULTILINE)
_FIELDS: Final = "%i|%T|%r|%N|%S|%k"  # the comment last: it may contain anything
_PREFIX: Final = re.compile(r"^(?:\w+: )?(?:error: )*(?:Batch job submission failed: |allocation failure: )?")
_PASSING: Final = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection reset by peer",
    "Connection timed out",
    "Broken pipe",
    "Communication connection failure",
    "Transport endpoint is not connected",
    "No route to host",
    "Network is unreachable",
    "missing socket error",
    "slurm_msg_sendto",
    "slurm_receive_msg",
    "Zero Bytes were transmitted",
    "Protocol authentication error",
    "Munge",
    "Resource temporarily unavailable",
    "Slurm temporarily unable to accept job",
    "Slurm backup controller",
    "Job violates accounting/QOS policy",
)
"""Refusals that another try may not meet: the controller is away, or a limit of jobs that are submitted is reached."""

_log = logging.getLogger(__name__)


class JobState(NamedTuple):
    """A job as Slurm shows it.

    Attributes:
        state: Such as `PENDING` or `OUT_OF_MEMORY`.
        reason: Why it is in that state, as one word; `None` without a reason.
        nodes: Its nodes; empty before it runs.
        comment: By which we know our own.
        started: When it began, or is expected to, in seconds since 1970; None if unknown.
    """

    state: str
    reason: str = "None"
    nodes: str = ""
    comment: str = ""
    started: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether no process of it is left."""
        return self.state not in _UNFINISHED

    @property
    def is_ending(self) -> bool:
        """Whether its processes are asked to end, or have ended."""
        return self.is_over or self.state == "COMPLETING"


_UNFINISHED: Final = frozenset(
    {
        *("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED"),
        *("REQUEUE_HOLD", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SIGNALING", "RESV_DEL_HOLD"),
    }
)


class SlurmAnswer(NamedTuple):
    """The answer of Slurm to a job that is only tested.

    Attributes:
        refusal: Why it would not take it; empty if it would.
        warnings: Differences from the request.
    """

    refusal: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slurm:
    """Calls the programs of Slurm."""

    environment: Mapping[str, str]
    warned: set[str] = field(default_factory=set)

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Slurm:
        """Return Slurm as this account finds it.

        Raises:
            TerminalError: There is none, or it does not answer.
        """
        slurm = cls(dict(environ))
        if environ.get("SBATCH_CLUSTERS"):
            raise TerminalError(f"SBATCH_CLUSTERS: {'; '.join(ONE_CLUSTER)}")
        try:
            slurm.jobs()
        except FileNotFoundError as error:
            cause = f"{error.filename} is not in PATH"
            raise TerminalError(f"--on slurm: {cause}; run this on a login node of a Slurm cluster") from error
        except UnavailableError as error:
            raise TerminalError(f"--on slurm: {error}; ask `sinfo` whether the cluster is up") from error
        return slurm

    def submit(self, script: str, options: Sequence[str], environment: Mapping[str, str]) -> str:
        """Submit a job; return its number.

        Raises:
            InvalidError: Slurm refuses it, and would do so again.
            UnavailableError: It cannot be submitted now.
        """
        done = self.run(("sbatch", "--parsable", *options), script, environment)
        if done.returncode != 0:
            text = error_text(done.stderr)
            if is_passing(text):
                raise UnavailableError(f"Slurm takes no job now: {text}")
            raise refused(text)
        for warning in warnings_in(done.stderr):
            self._warn(warning)
        return done.stdout.strip().partition(";")[0]

    def _warn(self, warning: str) -> None:
        """Log a warning of `sbatch` once."""
        if warning not in self.warned:
            self.warned.add(warning)
            _log.warning("Slurm warns", extra={"cause": warning, "sentence": f"sbatch: {warning}"})

    def check(self, options: Sequence[str]) -> SlurmAnswer:
        """Return the answer of Slurm to a job with these options of `sbatch`."""
        done = self.run(("sbatch", "--test-only", *options), "#!/bin/sh\n")
        return self._answer(done, error_text(done.stderr))

    def check_step(self, options: Sequence[str], environment: Mapping[str, str]) -> SlurmAnswer:
        """Return the answer of `srun` to a step with these options, in the allocation that its environment names.

        Options that choose a place count for jobs only: an allocation has its place.
        """
        done = self.run(("srun", "--test-only", *options, "true"), environment=environment)
        return self._answer(done, "" if _OF_SCHEDULER in done.stderr else error_text(done.stderr))

    def _answer(self, done: subprocess.CompletedProcess[str], refusal: str) -> SlurmAnswer:
        if done.returncode != 0:
            return SlurmAnswer("" if is_passing(refusal) else refusal)
        warnings = warnings_in(done.stderr)
        self.warned.update(warnings)
        return SlurmAnswer(warnings=warnings)

    def jobs(self) -> dict[str, JobState]:
        """Return all jobs of this account that Slurm knows, also those that have ended lately, by their numbers.

        Raises:
            UnavailableError: Slurm does not answer.
        """
        done = self.run(("squeue", "--me", "--noheader", "--states=all", f"--format={_FIELDS}"))
        if done.returncode != 0:
            raise UnavailableError(f"Slurm does not answer: {error_text(done.stderr)}")
        return parse_jobs(done.stdout)

    def cluster(self) -> str:
        """Return the name of the cluster; empty if Slurm does not name it."""
        try:
            said = self.run(("scontrol", "show", "config")).stdout
        except (FileNotFoundError, UnavailableError):
            said = ""
        found = _CLUSTER.search(said)
        return found[1] if found else self.environment.get("SLURM_CLUSTER_NAME", "")

    def is_ending(self, job: str) -> bool:
        """Return whether Slurm says that a job ends, or does not know it any more."""
        try:
            state = self.jobs().get(job)
        except UnavailableError:
            return False
        return state is None or state.is_ending

    def steps(self, job: str) -> dict[str, str]:
        """Return the steps that a job has now, as `12.3`, by their names.

        Raises:
            UnavailableError: Slurm does not answer.
        """
        done = self.run(("squeue", "--steps", f"--jobs={job}", "--noheader", "--format=%i|%j"))
        if done.returncode != 0:
            raise UnavailableError(f"Slurm does not answer: {error_text(done.stderr)}")
        return {name: step for step, _, name in (line.partition("|") for line in done.stdout.splitlines())}

    def cancel(self, jobs: Iterable[str], signal: str = "") -> None:
        """End jobs, or send all their processes a signal. Jobs that are over are fine.

        Raises:
            UnavailableError: Slurm does not answer.
        """
        words = (*(() if "." in "".join(jobs := tuple(jobs)) else ("--full",)), f"--signal={signal}") if signal else ()
        done = self.run(("scancel", *words, *jobs))
        if done.returncode != 0 and is_passing(text := error_text(done.stderr)):
            raise UnavailableError(f"Slurm does not answer: {text}")

    def run(
        self, argv: Sequence[str], given: str = "", environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Return how a command of Slurm ended.

        Args:
            environment: Its environment; None: that of all commands.

        Raises:
            FileNotFoundError: There is no such command.
            UnavailableError: It cannot be started, or takes too long.
        """
        try:
            return subprocess.run(  # noqa: S603 - our own command
                argv,
                env={**self.environment, "SLURM_TIME_FORMAT": "%s"} if environment is None else environment,
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"Slurm does not answer: {argv[0]} took {TIMEOUT_SECONDS:g} s") from None
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnavailableError(f"{argv[0]} cannot be started: {error.strerror}") from error


def parse_jobs(text: str) -> dict[str, JobState]:
    """Return the jobs that `squeue` lists, by their numbers."""
    found = {}
    for line in text.splitlines():
        if line.count("|") >= _FIELDS.count("|"):
            number, state, reason, nodes, start, comment = line.split("|", _FIELDS.count("|"))
            found[number] = JobState(state, reason, nodes, comment, int(start) if start.isdecimal() else None)
    return found


def error_text(stderr: str) -> str:
    said = [_PREFIX.sub("", line).strip() for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(filter(None, said))) or "no reason given"


def warnings_in(stderr: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_WARNING.findall(stderr)))


def is_passing(text: str) -> bool:
    """Return whether a refusal may not come again at another time."""
    return any(words in text for words in _PASSING)


def refused(cause: str) -> InvalidError:
    """Return the error for a job that Slurm does not take."""
    remedy = (
        "correct --slurm-option, the options of the batch script, the annotation katib.kubeflow.org/slurm-options "
        "or the resources of the template"
    )
    return invalid("spec.trialTemplate", f"Slurm refuses the job of a trial: {cause}", remedy, "slurm-refused")


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of a job in which this process itself runs."""
    return {name: value for name, value in environ.items() if not name.startswith("SLURM_") or name in _KEPT}


_KEPT: Final = frozenset({"SLURM_CONF", "SLURM_TIME_FORMAT", "SLURM_CONF_SERVER", "SLURM_CLUSTERS"})
