"""Validation of a Job for this machine at submission: every field is supported, ignored with a notice, or refused.

Belongs here: the table of all fields with their treatment, the rules between fields, and the capacity of the machine.
Does not belong here: the shape of a Job (`katib.model.templates.job_schema`) and running it.
"""

from __future__ import annotations

from katib.places.machine.admission.check import check_job
from katib.places.machine.admission.host import HostCapacity
