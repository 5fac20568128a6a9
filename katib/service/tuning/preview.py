"""The first trial of an experiment, before it is submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from katib.errors import invalid
from katib.model.space import SearchSpace, first_trials
from katib.model.templates import compile_template, template_text
from katib.model.trials import is_asked
from katib.model.types import Experiment, ParameterAssignment, TrialTemplate
from katib.service.tuning.service import Preview

DataFor = Callable[[str, str], Mapping[str, Any] | None]
"""Takes namespace and name of a ConfigMap; returns its data, None when there is none."""


def preview_trial(experiment: Experiment, data_for: DataFor) -> Preview:
    """Return the first trial of an experiment.

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
    if first := first_trials(experiment.spec):
        return {a.name: a.value for a in first[0].parameter_assignments}
    if experiment.spec.nas_config is not None:
        cause, remedy = "only its algorithm makes architectures", "submit it to see its first trial"
        raise invalid("spec.nasConfig", cause, remedy, "preview-nas")
    space = SearchSpace.of(experiment.spec.parameters, constraints=experiment.spec.parameter_constraints)
    return space.format(space.sample(Random(0)))
