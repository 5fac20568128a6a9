"""What this machine can run of a Job, said at submission: every field is run, named in a notice, or refused.

Belongs here: the table of all fields with their fate, the rules between fields, and what the machine has.
Does not belong here: the shape of a Job (`katib.model.templates.job_schema`) and running it.
"""

from __future__ import annotations

from katib.places.machine.admission.check import check_job
from katib.places.machine.admission.host import HostCapacity

__all__ = ["HostCapacity", "check_job"]
