"""Settings of the controllers, with their defaults and the reason for each."""

from __future__ import annotations

from dataclasses import dataclass

FINISH_ANNOTATION = "katib.kubeflow.org/running-trials-on-completion"
"""Annotation of an Experiment: `stop` (default) ends the running trials when the goal is reached or the failure budget
is spent; `finish` lets them complete, as Katib does."""

FINISH = "finish"


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Times and limits.

    Attributes:
        metrics_timeout_seconds: How long a finished job's metrics may be outstanding before the trial ends as
            MetricsUnavailable. A running collector reports within a second; a minute covers a database restart.
        explanation_seconds: How long a trial whose metrics have no value waits for its collector's explanation. On a
            cluster it is in a pod's status, which may be seen after the end of the job.
        service_patience_seconds: How long a suggestion service may keep failing on a question, or returning unusable
            answers, before the experiment fails. An unreachable service is retried without end.
        service_attempts: Minimum number of consecutive failures before that, so that one slow answer is not the end.
        deletion_patience_seconds: How long a deleted trial waits for an unreachable log, so that its metrics are
            removed, too. Deleting an object should not have to wait for a database.
        refusal_patience_seconds: How long the pods of a trial's job may be refused for their spec, by Pod Security for
            example, before the trial fails. It keeps its place in the experiment meanwhile.
        passing_refusal_patience_seconds: The same if they may be admitted unchanged: long enough for another trial to
            end, or for a webhook to come back.
        discards_before_start: Whether readings under a trial's name are removed before its job is created. Needed if
            they may outlive their trial, or another client may delete and recreate the job.
        summary_interval_seconds: Minimum interval between writes of an experiment's counts. Trials of a few
            milliseconds change them a hundred times a second; no reader needs them that often.
        workers: Threads of each controller; with a remote store they mostly wait for it.
    """

    metrics_timeout_seconds: float = 60.0
    explanation_seconds: float = 0.0
    service_patience_seconds: float = 120.0
    service_attempts: int = 8
    deletion_patience_seconds: float = 10.0
    refusal_patience_seconds: float = 60.0
    passing_refusal_patience_seconds: float = 300.0
    discards_before_start: bool = False
    summary_interval_seconds: float = 0.1
    workers: int = 2


RETENTION_SECONDS = 60.0
"""Between two removals of old logs and checkpoints."""

RETENTION_COMPLAINT = "Old logs or checkpoints of trials not removed"
"""Start of the error message of `katib.engine.runtime.periodic.PeriodicTasks`; the cause follows."""
