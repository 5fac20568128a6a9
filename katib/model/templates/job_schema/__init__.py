"""The structure of a `batch/v1` Job: every field of every part with its type, and the check of an object against it.

Belongs here: what the API of Kubernetes says about the shape of a Job. Does not belong here: which fields do something
on this machine, or which values make sense together.
"""

from __future__ import annotations

from katib.model.templates.job_schema.check import (
    POD_TEMPLATE,
    JobSchema,
    Model,
    check_job_schema,
    check_value,
    job_schema,
)
from katib.model.templates.job_schema.descriptions import DESCRIPTIONS

__all__ = [
    "DESCRIPTIONS",
    "POD_TEMPLATE",
    "JobSchema",
    "Model",
    "check_job_schema",
    "check_value",
    "job_schema",
]
