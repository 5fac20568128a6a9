"""What a suggestion service answers, as the wire's client hands it to the controllers."""

from __future__ import annotations

from dataclasses import dataclass

from katib.api.types import AlgorithmSetting, ParameterAssignment


@dataclass(frozen=True, slots=True)
class SuggestedAssignment:
    """One answer of a suggestion service; an empty name leaves naming to the controller."""

    assignments: tuple[ParameterAssignment, ...]
    trial_name: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class SuggestionsReply:
    """A whole answer. Fewer assignments than asked, with `exhausted`, mean that the search space has no more."""

    assignments: tuple[SuggestedAssignment, ...]
    algorithm_settings: tuple[AlgorithmSetting, ...] = ()
    exhausted: bool = False
