"""The structure of a `batch/v1` Job: every field with its type, and the validation of an object.

Belongs here: the shape of a Job in the Kubernetes API. Does not belong here: which fields have an effect on this
machine, or which values make sense together.
"""

from __future__ import annotations

from katib.model.templates.job_schema.check import (
    POD_TEMPLATE,
    JobSchema,
    SchemaModel,
    check_job_schema,
    check_value,
    job_schema,
)
from katib.model.templates.job_schema.descriptions import DESCRIPTIONS
