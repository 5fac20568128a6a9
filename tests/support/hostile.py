"""An experiment whose author wants a script to run in the browsers of those who look at it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from katib.model.metrics import MetricLog
from katib.model.types import Experiment
from katib.service.tuning.service import Diagnosis, RecordedEvent
from tests.support.tuning import MemoryTuningService, condition, document, make_trial, patched

SCRIPT = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'


def hostile_service() -> MemoryTuningService:
    """Return a service with an experiment that has a script in every text that somebody else may choose."""
    service = MemoryTuningService()
    raw = document("demo").replace('"loss"', '"loss' + SCRIPT.replace('"', "'") + '"')
    service.submit(raw, source="demo.yaml")
    experiment = service.get(Experiment, "default", "demo")
    message = condition("Running", SCRIPT, SCRIPT)
    metric = experiment.encode()["spec"]["objective"]["objectiveMetricName"]
    for index in range(3):
        trial = patched(
            make_trial(f"demo-{index:04d}", condition("Succeeded", SCRIPT, SCRIPT), index=index, x=SCRIPT),
            spec={"objective": experiment.encode()["spec"]["objective"]},
        )
        trial = patched(
            trial, status={"observation": {"metrics": [{"name": metric, "min": "1", "max": "1", "latest": "1"}]}}
        )
        service.put(trial)
        service.write_log("default", f"demo-{index:04d}", f"{SCRIPT}\n\x1b]0;{SCRIPT}\x07\n".encode())
    best = {"bestTrialName": SCRIPT, "parameterAssignments": [{"name": SCRIPT, "value": SCRIPT}]}
    service.put({**experiment.encode(), "status": {"conditions": [message], "currentOptimalTrial": best, "trials": 3}})
    tags, notes = (SCRIPT[:32],), SCRIPT
    service.edit("default", "demo", tags=tags, notes=notes)
    service.edit_trial("default", "demo-0000", tags=tags, notes=notes)
    for kind, name in (("Experiment", "demo"), ("Trial", "demo-0000")):
        told = Diagnosis(kind, name, "Running", SCRIPT, (SCRIPT,), (SCRIPT,), (SCRIPT,), SCRIPT)
        service.explain("default", told)
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    service.store_readings("demo-0000", *(MetricLog(moment + timedelta(seconds=n), metric, str(n)) for n in range(3)))
    for kind, name in (("Experiment", "demo"), ("Trial", "demo-0000")):
        service.record("default", RecordedEvent(moment, kind, name, True, SCRIPT, SCRIPT))
    return service
