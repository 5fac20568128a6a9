"""Progress of an experiment as shown to a user, and diagnoses: why it does not progress, or how it ended.

Belongs here: pure functions from evidence to a Diagnosis (the evidence may come from any store), and the presentation
of a run that the command line and `katib.tune` share (`progress`, `lines`). Does not belong here: stores, processes,
the live table (`katib.doors.cli.run`).
"""

from __future__ import annotations

from katib.service.explaining.ended import cause_of_loss, common_cause, lost_sentence, more_trials
from katib.service.explaining.evidence import LOCAL, Evidence, JobFacts, Place, ServiceFacts
from katib.service.explaining.experiment import diagnose_experiment
from katib.service.explaining.optimization_job import diagnose_optimization_job
from katib.service.explaining.trial import diagnose_trial

__all__ = [
    "LOCAL",
    "Evidence",
    "JobFacts",
    "Place",
    "ServiceFacts",
    "cause_of_loss",
    "common_cause",
    "diagnose_experiment",
    "diagnose_optimization_job",
    "diagnose_trial",
    "lost_sentence",
    "more_trials",
]
