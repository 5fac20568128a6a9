"""Knobs of the controllers, with their defaults and the reason for each."""

from __future__ import annotations

from dataclasses import dataclass

FINISH_ANNOTATION = "katib.kubeflow.org/running-trials-on-completion"
"""On an Experiment: `stop` (default) ends what still runs when the goal is reached or the failure budget is spent;
`finish` lets it run to its end, as Katib does."""

FINISH = "finish"


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Times and limits.

    Attributes:
        metrics_timeout_seconds: How long a finished job may leave its metrics outstanding before the trial ends as
            MetricsUnavailable. A collector that is alive reports within a second; a minute covers a database restart.
        explanation_seconds: How long a trial whose metrics came without a value waits for its collector's words. On
            a cluster they are in a pod's status, which may be seen after the end of the job.
        service_patience_seconds: How long a suggestion service may keep breaking on a question, or answering with what
            cannot be used, before the experiment fails. One that cannot be reached is waited for without end.
        service_attempts: How many failures in a row it takes at least, so that one slow answer is not the end.
        deletion_patience_seconds: How long a deleted trial waits for a log that cannot be reached, so that its metrics
            go too. Deleting an object should not have to wait for a database.
        refusal_patience_seconds: How long the pods of a trial's job may be refused for what they are, by Pod Security
            for example, before the trial fails. Its place in the experiment is held meanwhile.
        passing_refusal_patience_seconds: The same where they may be let in as they are: long enough for another trial
            to end, or for a webhook to come back.
        discards_before_start: Whether readings under a trial's name are removed before its job is created. Needed
            where they may outlive their trial, or the job may be deleted and created again by another client.
        summary_interval_seconds: How often the counts of an experiment are written at most. Trials of a few
            milliseconds change them a hundred times a second; no reader needs them that often.
        workers: Threads of each controller: where the store is across a network, they mostly wait for it.
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
