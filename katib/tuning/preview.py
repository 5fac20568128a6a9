"""The first trial of an experiment that was not submitted: what would run, with values filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from katib.api.leases import is_asked
from katib.api.types import Experiment, ParameterAssignment, TrialTemplate
from katib.errors import invalid
from katib.space.search_space import SearchSpace
from katib.templates.render import compile_template
from katib.templates.source import template_text
from katib.tuning.service import Preview

DataFor = Callable[[str, str], Mapping[str, Any] | None]
"""Takes namespace and name of a ConfigMap; returns its data, None when there is none."""


def preview_trial(experiment: Experiment, data_for: DataFor) -> Preview:
    """Return what the first trial would run.

    Its values are those of the first initial trial, else drawn at random with a fixed seed: the algorithm is not asked.

    Args:
        experiment: With defaults, and admitted.
        data_for: Finds the ConfigMap of the template.

    Raises:
        InvalidError: It is an architecture search, whose values only its algorithm can make, or the template
            cannot be rendered with these values.
    """
    texts = _texts(experiment)
    if is_asked(experiment):
        return Preview(texts, {})
    assignments = [ParameterAssignment(name=name, value=text) for name, text in texts.items()]
    template = experiment.spec.trial_template or TrialTemplate()
    compiled = compile_template(template, template_text(template, data_for), experiment.spec.parameters)
    run_spec = compiled.render(assignments, f"{experiment.name}-example", experiment.namespace)
    return Preview(texts, run_spec)


def _texts(experiment: Experiment) -> dict[str, str]:
    if experiment.spec.initial_trials:
        return {a.name: a.value for a in experiment.spec.initial_trials[0].parameter_assignments}
    if experiment.spec.nas_config is not None:
        cause, remedy = "only its algorithm makes architectures", "submit it to see its first trial"
        raise invalid("spec.nasConfig", cause, remedy, "preview-nas")
    space = SearchSpace.of(experiment.spec.parameters)
    return space.format(space.sample(Random(0)))
