"""Differentiable architecture search: nothing to choose here, since one trial searches by itself.

The trial trains a network whose layers are weighted mixtures of all operations, and learns the weights along with the
network. The service hands it the settings of that training, the operations and the number of layers, in the texts that
Katib's training image reads. All suggestions are equal: more than one trial repeats the search with what is random in
the training. Katib's service answers the first request only; this one answers all.

Source: Liu, Simonyan, Yang (2019), DARTS: Differentiable Architecture Search, ICLR.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from typing_extensions import override

from katib.model.architecture import PLAIN_OPERATION
from katib.model.types import NasConfig
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal
from suggestion_services.base.operations import values_of
from suggestion_services.setting_specs import DARTS

DEFAULTS: Mapping[str, int | float] = {
    spec.name: int(spec.default) if spec.type == "int" else float(spec.default) for spec in DARTS
}
"""Settings of the training in the order in which they are sent."""


class Darts(Algorithm):
    """The algorithm `darts`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        config = problem.nas or NasConfig()
        self._proposal = Proposal(
            {
                "algorithm-settings": single_quoted(settings_of(problem.settings.texts)),
                "search-space": single_quoted(operation_names(config)),
                "num-layers": str(config.graph_config.num_layers or 0),
            }
        )

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Proposal]:
        del trials, first
        for _ in range(count):
            yield self._proposal


def settings_of(texts: Mapping[str, str]) -> dict[str, int | float | str | None]:
    """Return all settings of the training: defaults as numbers, what the user gave as text, `None` as null."""
    given = {name: None if text == "None" else text for name, text in texts.items()}
    return {**DEFAULTS, **given}


def operation_names(config: NasConfig) -> list[str]:
    """Return the operations as the training calls them, such as `max_pooling_3x3`: one for each size.

    The size is the first parameter of an operation, whatever its name.
    """
    names: list[str] = []
    for operation in config.operations:
        kind = operation.operation_type
        sizes = values_of(operation.parameters[0]) if kind != PLAIN_OPERATION else ()
        names += [f"{kind}_{size}x{size}" for size in sizes] or [kind]
    return names


def single_quoted(data: object) -> str:
    """Return JSON with single quotes in place of double ones, so that templates can put double ones around it."""
    return json.dumps(data).replace('"', "'")
