"""Differentiable architecture search: the trial itself searches, so there is nothing to choose here.

The trial trains a network with layers that are weighted mixtures of all operations, and learns the weights along with
the network. The service passes it the settings of that training, the operations and the number of layers, in the format
of Katib's training image. All suggestions are equal: further trials repeat the search with other random numbers.
Katib's service answers the first request only; this one answers all.

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
    """Return all settings of the training: defaults as numbers, user settings as text, `None` as null."""
    given = {name: None if text == "None" else text for name, text in texts.items()}
    return {**DEFAULTS, **given}


def operation_names(config: NasConfig) -> list[str]:
    """Return the operations by the names that the training uses, such as `max_pooling_3x3`: one for each size.

    The size is the first parameter of an operation, whatever its name.
    """
    names: list[str] = []
    for operation in config.operations:
        kind = operation.operation_type
        sizes = values_of(operation.parameters[0]) if kind != PLAIN_OPERATION else ()
        names += [f"{kind}_{size}x{size}" for size in sizes] or [kind]
    return names


def single_quoted(data: object) -> str:
    """Return JSON with single quotes for double ones, so that templates can enclose it in double quotes."""
    return json.dumps(data).replace('"', "'")
