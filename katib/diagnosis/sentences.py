"""Sentences about an experiment that fit while it runs and when it has ended."""

from __future__ import annotations

from katib.diagnosis.evidence import Evidence
from katib.tuning.reading import assignments_of, completed_count, name_of, objective_of, objective_value, status_of
from katib.tuning.service import Json


def progress_sentence(experiment: Json) -> str:
    """Return how many trials are done, running and waiting."""
    status, limit = status_of(experiment), experiment.get("spec", {}).get("maxTrialCount")
    of = f" of {limit}" if limit is not None else ""
    running, pending = int(status.get("trialsRunning") or 0), int(status.get("trialsPending") or 0)
    return f"{completed_count(experiment)}{of} trials are done, {running} running, {pending} waiting."


def best_sentences(experiment: Json, evidence: Evidence) -> list[str]:
    """Return which trial is the best so far, or that there is none."""
    best, metric = evidence.best, objective_of(experiment).get("objectiveMetricName", "")
    if best is None:
        return ["No trial has a usable objective value so far."]
    values = ", ".join(f"{key}={value}" for key, value in assignments_of(best).items())
    return [f"Best trial so far: {name_of(best)} with {metric}={objective_value(best)} ({values})."]


def condition_words(condition: Json) -> str:
    """Return what a condition says, without a full stop."""
    return str(condition.get("message") or condition.get("reason") or "no reason was recorded").rstrip(".")
