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
        service_patience_seconds: How long a suggestion service may keep failing before the experiment fails. Long
            enough for a restart with a cold import of a large library, short enough that nobody waits for nothing.
        service_attempts: How many failures in a row it takes at least, so that one slow answer is not the end.
    """

    metrics_timeout_seconds: float = 60.0
    service_patience_seconds: float = 120.0
    service_attempts: int = 8
