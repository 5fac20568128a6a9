"""Explains why an experiment or trial does not progress, or how it ended.

Belongs here: pure functions from evidence to a Diagnosis. Anyone who holds the objects gathers the evidence.
Does not belong here: stores, processes, clocks, printing.
"""

from __future__ import annotations

from katib.diagnosis.ended import common_cause
from katib.diagnosis.evidence import Evidence, JobFacts, ServiceFacts
from katib.diagnosis.experiment import diagnose_experiment
from katib.diagnosis.place import LOCAL, Place
from katib.diagnosis.trial import diagnose_trial

__all__ = [
    "LOCAL",
    "Evidence",
    "JobFacts",
    "Place",
    "ServiceFacts",
    "common_cause",
    "diagnose_experiment",
    "diagnose_trial",
]
