"""Validation: the rules that an experiment must satisfy to be accepted. All errors are returned at once.

Belongs here: rules about the experiment alone, one module for each block of the spec. Does not belong here: the content
of a trial template (`check_template` of the caller), rules that only a suggestion service knows, and anything that does
I/O. Rules apply to an experiment with defaults. `docs/reference/errors.md` lists every origin with its rule, cause and
cure.
"""

from __future__ import annotations

from katib.model.validation.admission import admit, admit_update
from katib.model.validation.experiment import TemplateCheck, find_warnings, validate_experiment
