"""Names, labels and annotations: built and parsed here and nowhere else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping

EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
TRIAL_LABEL = "katib.kubeflow.org/trial"
"""On pods: whose they are."""

JOB_LABEL = "katib.kubeflow.org/job-of"
"""On jobs: which trial each runs, so that the jobs of others need not be looked at. Not the label of pods, because some
kinds hand their labels on to all their pods, and those of pods say that there is a collector."""

KUEUE_LABELS = "kueue.x-k8s.io/"
QUEUE_LABEL = f"{KUEUE_LABELS}queue-name"
"""On a job, or on an Experiment for all its jobs: the queue of Kueue that it waits in. Other labels that begin so, such
as that of its priority, go with it."""

CHOSEN_BY_LABEL = "katib.kubeflow.org/chosen-by"
BY_USER = "user"
"""On a trial that no algorithm proposed: an initial trial of the file, or one added by hand. With `caller` below, on an
Experiment and its trials: callers choose the parameters themselves, each in the course of its trial."""

GENERATION_LABEL = "pbt.suggestion.katib.kubeflow.org/generation"
"""On trials of population based training: how many trials led to its checkpoint."""

PARENT_LABEL = "pbt.suggestion.katib.kubeflow.org/parent"
"""On the same: the trial whose checkpoint it starts from; absent where it starts from nothing."""

MEMBER_LABEL = "pbt.suggestion.katib.kubeflow.org/member"
STEP_LABEL = "pbt.suggestion.katib.kubeflow.org/step"
"""Ours, beside Katib's generation and parent: a member that copies another one has the same parent as that one's next
step, so the parent alone does not say whose step a trial is."""

_OF_ALGORITHMS = ".suggestion.katib.kubeflow.org/"

EXPERIMENT_FINALIZER = "update-prometheus-metrics"
TRIAL_FINALIZER = "clean-metrics-in-db"

WORKSPACE_ANNOTATION = "katib.kubeflow.org/workspace"
"""On an Experiment: the directory that relative paths of its commands start from, that of the submitted file."""

PROGRAM_ANNOTATION = "katib.kubeflow.org/program"
"""On an Experiment of one machine: the files of its program when it was submitted, a hash of each, as JSON."""

SUBMITTED_BUDGET_ANNOTATION = "katib.kubeflow.org/submitted-trials"
"""On an Experiment whose budget was raised beside its file: the `maxTrialCount` of the file."""

COMMAND_ANNOTATION = "katib.kubeflow.org/command"
"""On an Experiment of one machine: the command that runs it, as its user typed it."""

REMEDY = "; remedy: "
"""Before each remedy in the report of a collector."""

METRICS_REPORT_ANNOTATION = "katib.kubeflow.org/metrics-report"
"""On a job: what its collector has to say when the objective metric was not found."""

REPLICA_ANNOTATION = "katib.kubeflow.org/replica"
"""On a pod of one machine: which replica of its job it is, as `worker-1`."""

RETRYING_REASON = "TrialRetrying"
"""Reason of the condition Running once a try of the job has failed; the message says how, and which try follows."""

METRICS_INCOMPLETE = "MetricsIncomplete"
"""Reason of the condition MetricsUnavailable where readings were found, but not all of them are stored."""

EVALUATED_BY_LABEL = "katib.kubeflow.org/evaluated-by"
BY_CALLER = "caller"
"""On a trial that no job evaluates, but the program that asks for it: its experiment has no trial template."""

NUMBER_LABEL = "katib.kubeflow.org/number"
"""On an Experiment whose trials' parameters are chosen by callers: a number that no other one has, or had."""

TITLE_ANNOTATION = "katib.kubeflow.org/title"
"""On the same: what its callers call it, of any characters."""

ASK_LABEL = "katib.kubeflow.org/ask-id"
"""On such a trial: the request that it was given to last."""

ASKED_ANNOTATION = "katib.kubeflow.org/asked-trials"
"""On an Experiment without trial template: how many trials were asked for since it began; no more are made."""

AHEAD_ANNOTATION = "katib.kubeflow.org/asked-ahead"
"""On the same, where its algorithm does not learn: how many assignments are kept ready for those who will ask."""

LEASE_ANNOTATION = "katib.kubeflow.org/lease"
"""On a trial that a caller evaluates: which one, and until when it is waited for, as JSON."""

OUTCOME_ANNOTATION = "katib.kubeflow.org/outcome"
"""On the same: how the caller ended it, as JSON."""

LOST_LEASES_ANNOTATION = "katib.kubeflow.org/lost-leases"
ASK_AGAIN, FAIL = "ask-again", "fail"
"""On an Experiment without trial template, and on its trials: what becomes of a trial whose caller is lost."""

MAX_EXPERIMENT_NAME = 40

FIRST_FAILURES_ANNOTATION = "katib.kubeflow.org/first-failures"
"""On an Experiment: after how many first trials that all fail alike it fails, before any value was read; 0: never."""

FIRST_FAILURES = 3
"""Where the annotation is absent."""

LEARNS_FROM_ANNOTATION = "katib.kubeflow.org/learns-from"
NOTHING = "none"
"""On an Experiment: the experiments that it learns from, separated by commas, or `none`. Where it is absent, they are
looked for when `auto` gets a new one."""

SLURM_OPTIONS_ANNOTATION = "katib.kubeflow.org/slurm-options"
"""On a pod template: options of `sbatch` for its trials, such as `partition=gpu time=01:00:00`."""

DRAFTED_IMAGE = "python:3.11-slim"
"""The image of templates that we draft: where images are not run, there is no need to tell its author so."""
ALGORITHM_ANNOTATION = "katib.kubeflow.org/algorithm"
ALGORITHM_SETTINGS_ANNOTATION = "katib.kubeflow.org/algorithm-settings"
"""On an OptimizationJob: an algorithm in place of those that the object can name, and its options, as `a=1, b=2`."""

EARLY_STOPPING_ANNOTATION = "katib.kubeflow.org/early-stopping"
EARLY_STOPPING_SETTINGS_ANNOTATION = "katib.kubeflow.org/early-stopping-settings"
"""On the same: an early stopping algorithm, and its options."""

OPTIMIZATION_JOB_LABEL = "katib.kubeflow.org/optimization-job"
"""On an Experiment: the OptimizationJob that it was made of."""

STOPPED_ANNOTATION = "katib.kubeflow.org/stopped"
HELD_WORDS = "its experiment is stopped"
"""Ends what a trial waits for of which nothing had begun when that was stopped."""
STOPPED = "true"
"""On an Experiment: no further trial starts until it is taken away."""

ENGINE_ANNOTATION = "katib.kubeflow.org/engine"
OF_SERVERS = "server"
"""On an Experiment of one machine: the engine that runs its trials, the id of a command's own or that of all servers;
other engines leave it interrupted. Without it, any engine that is at work runs them."""

PAUSED_ANNOTATION = "katib.kubeflow.org/paused"
PAUSED = "true"
"""On a trial: its user suspended it, and another trial may run in its place."""

CHECKPOINTS_ANNOTATION = "katib.kubeflow.org/checkpoints"
KEPT = "keep"
"""On an Experiment: each trial on one machine has a folder for its checkpoint, and goes on from it after it was cut
off."""

TAGS_ANNOTATION = "katib.kubeflow.org/tags"
"""On an Experiment: words that its users find it by, separated by commas."""

NOTES_ANNOTATION = "katib.kubeflow.org/notes"
"""On an Experiment: what its users want to remember of it."""

EXPERIMENT_STOPPED = "ExperimentStopped"
"""Reason of an Experiment's Running while it is stopped; the status says whether trials still run."""

EXPERIMENT_INTERRUPTED = "ExperimentInterrupted"
"""Reason of an Experiment's Running while it is unfinished and no engine runs its trials."""

TEMPLATE_MISSING = "TrialTemplateMissing"
"""Reason of an Experiment's Running while the text of its trial template is not there; the status says whether trials
still run."""

SERVICE_UNAVAILABLE = "SuggestionServiceUnavailable"
"""Reason of an Experiment's Running while assignments are wanted and its services do not answer, for a cause that may
pass; the status says whether trials still run."""

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Of generated names. No vowels: no accidental words, as in Kubernetes."""

_SUFFIX_LENGTH = 8
_NOT_OF_NAMES = re.compile(r"[^a-z0-9]+")


def trial_name(namespace: str, experiment: str, index: int | str, taken: Container[str] = ()) -> str:
    """Return the name of the index-th trial of an experiment; the next one in line if that is taken.

    A trial that was evaluated elsewhere has its own id in place of an index.

    The suffix looks random, as Katib's does, but is a hash: the same experiment gets the same names on every run, a
    repeated create is a conflict and not a twin, and equally named experiments of two namespaces do not share names.
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


def name_of_title(title: str) -> str:
    """Return the name of the Experiment with a title: the title where it can be one, else its letters and a hash."""
    letters = _NOT_OF_NAMES.sub("-", title.lower()).strip("-")
    if letters == title and letters[:1].isalpha() and len(title) <= MAX_EXPERIMENT_NAME:
        return title
    digest = hashlib.sha256(title.encode()).hexdigest()[:_SUFFIX_LENGTH]
    letters = letters if letters[:1].isalpha() else f"study-{letters}"
    return f"{letters[: MAX_EXPERIMENT_NAME - 1 - _SUFFIX_LENGTH].rstrip('-')}-{digest}"


def is_set_by_algorithm(label: str) -> bool:
    """Return whether a label is one that algorithms give to trials. Not every trial has it."""
    return _OF_ALGORITHMS in label


def without_queue(texts: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations without those of Kueue, which queues whatever bears them."""
    return {name: text for name, text in texts.items() if not name.startswith(KUEUE_LABELS)}


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""On an object: its file as `kubectl apply` sent it."""
