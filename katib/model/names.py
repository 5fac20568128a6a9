"""Names, labels and annotations, built and parsed only here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping

EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
TRIAL_LABEL = "katib.kubeflow.org/trial"
"""On pods: their trial."""

JOB_LABEL = "katib.kubeflow.org/job-of"
"""On jobs: their trial, so that unrelated jobs can be skipped. Not the label of pods, because some kinds copy their
labels to all their pods, and the label of a pod implies a collector."""

KUEUE_LABELS = "kueue.x-k8s.io/"
QUEUE_LABEL = f"{KUEUE_LABELS}queue-name"
"""On a job, or on an Experiment for all its jobs: its Kueue queue. Other labels with that prefix, such as the priority,
are copied with it."""

CHOSEN_BY_LABEL = "katib.kubeflow.org/chosen-by"
BY_USER = "user"
BY_DEFAULT = "default"
"""On a trial that no algorithm proposed: an initial trial of the file, or one added by hand; `default` on the first
trial if parameters have defaults. With `caller` below, on an Experiment and its trials: callers choose the parameters
themselves, each during its trial."""

GENERATION_LABEL = "pbt.suggestion.katib.kubeflow.org/generation"
"""On trials of population based training: number of trials that led to its checkpoint."""

PARENT_LABEL = "pbt.suggestion.katib.kubeflow.org/parent"
"""On the same: the trial whose checkpoint it starts from; absent if there is none."""

STOPPED_AT_LABEL = "katib.kubeflow.org/stopped-at"
"""On a trial as suggestion services see it: the step, or number of the reading, after which early stopping ended it."""

MEMBER_LABEL = "pbt.suggestion.katib.kubeflow.org/member"
STEP_LABEL = "pbt.suggestion.katib.kubeflow.org/step"
"""Ours, in addition to Katib's generation and parent: a member that copies another one has the same parent as the next
step of that one, so the parent alone does not identify the member of a step."""

_OF_ALGORITHMS = ".suggestion.katib.kubeflow.org/"

EXPERIMENT_FINALIZER = "update-prometheus-metrics"
TRIAL_FINALIZER = "clean-metrics-in-db"

WORKSPACE_ANNOTATION = "katib.kubeflow.org/workspace"
"""On an Experiment: the directory that relative paths in its commands start from, that of the submitted file."""

PROGRAM_ANNOTATION = "katib.kubeflow.org/program"
"""On an Experiment of one machine: hashes of its program's files at submission, as JSON."""

SUBMITTED_BUDGET_ANNOTATION = "katib.kubeflow.org/submitted-trials"
"""On an Experiment whose budget was raised independently of its file: the `maxTrialCount` of the file."""

COMMAND_ANNOTATION = "katib.kubeflow.org/command"
"""On an Experiment of one machine: the command that runs it, as typed by the user."""

SEED_VARIABLE = "KATIB_SEED"
"""In the environment of a trial's programs: its seed, see `trial_seed`."""

REMEDY = "; remedy: "
"""Before each remedy in the report of a collector."""

METRICS_REPORT_ANNOTATION = "katib.kubeflow.org/metrics-report"
"""On a job: its collector's report on a missing objective metric."""

REPLICA_ANNOTATION = "katib.kubeflow.org/replica"
"""On a pod of one machine: its replica of the job, such as `worker-1`."""

RETRYING_REASON = "TrialRetrying"
"""Reason of the condition Running after a failed try of the job; the message gives the failure and the next try."""

METRICS_INCOMPLETE = "MetricsIncomplete"
"""Reason of the condition MetricsUnavailable if readings were found, but not all of them are stored."""

EVALUATED_BY_LABEL = "katib.kubeflow.org/evaluated-by"
BY_CALLER = "caller"
"""On a trial that is evaluated by the program that requested it, not by a job: its experiment has no trial template."""

NUMBER_LABEL = "katib.kubeflow.org/number"
"""On an Experiment whose trials' parameters are chosen by callers: a unique number, never reused."""

TITLE_ANNOTATION = "katib.kubeflow.org/title"
"""On the same: its callers' name for it, of any characters."""

ASK_LABEL = "katib.kubeflow.org/ask-id"
"""On such a trial: the latest request that was given it."""

ASKED_ANNOTATION = "katib.kubeflow.org/asked-trials"
"""On an Experiment without trial template: number of trials requested since it began; no more are created."""

AHEAD_ANNOTATION = "katib.kubeflow.org/asked-ahead"
"""On the same, if its algorithm does not learn: number of assignments kept ready for callers."""

LEASE_ANNOTATION = "katib.kubeflow.org/lease"
"""On a trial that a caller evaluates: the caller and the expiry of its lease, as JSON."""

OUTCOME_ANNOTATION = "katib.kubeflow.org/outcome"
"""On the same: the outcome that the caller reported, as JSON."""

LOST_LEASES_ANNOTATION = "katib.kubeflow.org/lost-leases"
ASK_AGAIN, FAIL = "ask-again", "fail"
"""On an Experiment without trial template, and on its trials: the effect of an expired lease."""

MAX_EXPERIMENT_NAME = 40

FIRST_FAILURES_ANNOTATION = "katib.kubeflow.org/first-failures"
"""On an Experiment: number of first trials whose failing alike, before any value was read, fails it; 0: never."""

FIRST_FAILURES = 3
"""Default if the annotation is absent."""

LEARNS_FROM_ANNOTATION = "katib.kubeflow.org/learns-from"
NOTHING = "none"
"""On an Experiment: the experiments that it learns from, separated by commas, or `none`. If absent, they are searched
when `auto` gets a new one."""

SLURM_OPTIONS_ANNOTATION = "katib.kubeflow.org/slurm-options"
"""On a pod template: options of `sbatch` for its trials, such as `partition=gpu time=01:00:00`."""

DRAFTED_IMAGE = "python:3.11-slim"
"""Image of drafted templates; its author need not be told if images are not run."""
ALGORITHM_ANNOTATION = "katib.kubeflow.org/algorithm"
ALGORITHM_SETTINGS_ANNOTATION = "katib.kubeflow.org/algorithm-settings"
"""On an OptimizationJob: an algorithm that its spec cannot name, and its options, such as `a=1, b=2`."""

EARLY_STOPPING_ANNOTATION = "katib.kubeflow.org/early-stopping"
EARLY_STOPPING_SETTINGS_ANNOTATION = "katib.kubeflow.org/early-stopping-settings"
"""On the same: an early stopping algorithm, and its options."""

OPTIMIZATION_JOB_LABEL = "katib.kubeflow.org/optimization-job"
"""On an Experiment: the OptimizationJob that it was created from."""

CONFIRMS_LABEL = "katib.kubeflow.org/confirms"
"""On an Experiment that runs the best configurations of another one again: the name of that one."""

CONFIRMED_ANNOTATION = "katib.kubeflow.org/confirmed-trials"
"""On the same: the configurations with the trials and values of the other one, as JSON."""

_CONFIRMATION = "-confirm"

STOPPED_ANNOTATION = "katib.kubeflow.org/stopped"
HELD_WORDS = "its experiment is stopped"
"""End of the waiting message of a trial that had not begun when its experiment was stopped."""
STOPPED = "true"
"""On an Experiment: no further trial starts until it is removed."""

ENGINE_ANNOTATION = "katib.kubeflow.org/engine"
OF_SERVERS = "server"
"""On an Experiment of one machine: the engine that runs its trials, the id of a command or that of all servers; other
engines leave it interrupted. Without it, any running engine runs them."""

PAUSED_ANNOTATION = "katib.kubeflow.org/paused"
PAUSED = "true"
"""On a trial: its user suspended it, and another trial may run in its place."""

CHECKPOINTS_ANNOTATION = "katib.kubeflow.org/checkpoints"
KEPT = "keep"
"""On an Experiment: each trial on one machine has a directory for its checkpoint and continues from it after an
interruption."""

TAGS_ANNOTATION = "katib.kubeflow.org/tags"
"""On an Experiment: its users' search words, separated by commas."""

NOTES_ANNOTATION = "katib.kubeflow.org/notes"
"""On an Experiment: its users' notes."""

VIEWS_ANNOTATION = "katib.kubeflow.org/views"
"""On an Experiment: its users' views of its page, a JSON object of the queries of their addresses by name."""

EXPERIMENT_STOPPED = "ExperimentStopped"
"""Reason of an Experiment's Running while it is stopped; the status tells whether trials still run."""

EXPERIMENT_INTERRUPTED = "ExperimentInterrupted"
"""Reason of an Experiment's Running while it is unfinished and no engine runs its trials."""

TEMPLATE_MISSING = "TrialTemplateMissing"
"""Reason of an Experiment's Running while the text of its trial template is missing; the status tells whether trials
still run."""

SERVICE_UNAVAILABLE = "SuggestionServiceUnavailable"
"""Reason of an Experiment's Running while it needs assignments and its services do not answer, for a transient cause;
the status tells whether trials still run."""

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Alphabet of generated names. No vowels: no accidental words, as in Kubernetes."""

_SUFFIX_LENGTH = 8
_NOT_OF_NAMES = re.compile(r"[^a-z0-9]+")


def trial_name(namespace: str, experiment: str, index: int | str, taken: Container[str] = ()) -> str:
    """Return the name of the index-th trial of an experiment; the next free one if it is taken.

    A trial that was evaluated elsewhere has its own id in place of an index.

    The suffix looks random, as Katib's does, but is a hash: the same experiment gets the same names on every run, a
    repeated create is a conflict and not a duplicate, and equally named experiments of two namespaces do not share
    names.
    """
    text = f"{namespace}/{experiment}/{index}"
    while True:
        digest = int.from_bytes(hashlib.sha256(text.encode()).digest())
        name = f"{experiment}-"
        for _ in range(_SUFFIX_LENGTH):
            digest, letter = divmod(digest, len(SUFFIX_ALPHABET))
            name += SUFFIX_ALPHABET[letter]
        if name not in taken:
            return name
        text += "+"


def trial_seed(namespace: str, trial: str) -> int:
    """Return the seed of a trial's random numbers, 1 to 2**31 - 1: a hash of its name, so a restart keeps it."""
    return int.from_bytes(hashlib.sha256(f"seed of {namespace}/{trial}".encode()).digest()) % (2**31 - 1) + 1


def confirmation_name(experiment: str) -> str:
    """Return the name of the Experiment that confirms another one."""
    room = MAX_EXPERIMENT_NAME - len(_CONFIRMATION)
    if len(experiment) <= room:
        return experiment + _CONFIRMATION
    digest = hashlib.sha256(experiment.encode()).hexdigest()[:_SUFFIX_LENGTH]
    return f"{experiment[: room - 1 - _SUFFIX_LENGTH].rstrip('-')}-{digest}{_CONFIRMATION}"


def name_of_title(title: str) -> str:
    """Return the name of the Experiment with a title: the title if it is a valid name, else its letters and a hash."""
    letters = _NOT_OF_NAMES.sub("-", title.lower()).strip("-")
    if letters == title and letters[:1].isalpha() and len(title) <= MAX_EXPERIMENT_NAME:
        return title
    digest = hashlib.sha256(title.encode()).hexdigest()[:_SUFFIX_LENGTH]
    letters = letters if letters[:1].isalpha() else f"study-{letters}"
    return f"{letters[: MAX_EXPERIMENT_NAME - 1 - _SUFFIX_LENGTH].rstrip('-')}-{digest}"


def is_set_by_algorithm(label: str) -> bool:
    return _OF_ALGORITHMS in label


def without_queue(texts: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations without Kueue's, which would queue the object that has them."""
    return {name: text for name, text in texts.items() if not name.startswith(KUEUE_LABELS)}


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""On an object: its file as `kubectl apply` sent it."""
