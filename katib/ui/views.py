"""What pages show of objects. Pure: objects in, values for templates and scripts out."""

from __future__ import annotations

from typing import Any

from katib.figures.trials import objectives_of
from katib.tuning.reading import (
    Json,
    assignments_of,
    best_value,
    completed_count,
    is_completed,
    last_condition,
    name_of,
    namespace_of,
    objective_words,
    state_of,
    status_of,
)

_COUNTS = {
    "Succeeded": "trialsSucceeded",
    "EarlyStopped": "trialsEarlyStopped",
    "Running": "trialsRunning",
    "Pending": "trialsPending",
    "Failed": "trialsFailed",
    "MetricsUnavailable": "trialMetricsUnavailable",
    "Killed": "trialsKilled",
}


def experiment_summary(experiment: Json) -> dict[str, Any]:
    """Return the head of an experiment's page: state, reason, counts, best, progress. All of it is JSON."""
    spec, status = experiment.get("spec", {}), status_of(experiment)
    best = status.get("currentOptimalTrial") or {}
    return {
        "name": name_of(experiment),
        "namespace": namespace_of(experiment),
        "state": state_of(experiment),
        "reason": str(last_condition(experiment).get("message", "")),
        "completed": is_completed(experiment),
        "algorithm": str((spec.get("algorithm") or {}).get("algorithmName", "")),
        "objective": objective_words(experiment),
        "metric": objectives_of(experiment)[0].name,
        "created": experiment["metadata"].get("creationTimestamp", ""),
        "started": status.get("startTime") or "",
        "ended": status.get("completionTime") or "",
        "done": completed_count(experiment),
        "limit": spec.get("maxTrialCount"),
        "parallel": spec.get("parallelTrialCount"),
        "counts": {state: int(status.get(field) or 0) for state, field in _COUNTS.items()},
        "best": {
            "trial": str(best.get("bestTrialName", "")),
            "value": best_value(experiment),
            "parameters": assignments_of({"spec": best}),
        },
    }
