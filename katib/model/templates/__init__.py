"""Trial templates: placeholders, rendering, validation, and condition paths.

Belongs here: pure functions from a template and an assignment to a trial's object, and from the status of that object
to a verdict. Does not belong here: reading ConfigMaps, running anything, the schema of one job kind.
"""

from __future__ import annotations

from katib.model.templates.check import check_template
from katib.model.templates.condition_path import ConditionPath, SatisfiedCondition, check_condition, parse
from katib.model.templates.placeholders import find_placeholders, has_placeholder
from katib.model.templates.render import CompiledTemplate, compile_template, render
from katib.model.templates.source import template_text
