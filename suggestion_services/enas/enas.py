"""Efficient neural architecture search: a controller proposes networks, and learns from their rewards.

Theory of operation: the controller's weights are a function of the seed and of the ended trials, in the order of their
suggestions, which is in a label. The k-th architecture is drawn with these weights and the k-th random source. So a
restarted service, which learns from all trials again, gives the same answers. A running service keeps the weights after
each of the latest trials, so that a request only learns what is new; a trial that ended out of order costs learning all
those suggested after it again.

Katib's service rewards a fresh sample with the mean of all trials; here a model of the trials' own measurements rewards
each sample. The trials receive architectures in the format of Katib's training image.

Source: [Pham2018] Efficient Neural Architecture Search via Parameter Sharing, ICML.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from katib.errors import FieldError
from katib.model.architecture import PATH
from katib.model.types import NasConfig
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.operations import OperationChoice, choices_of, count_choices
from suggestion_services.enas.controller import Architecture, ControllerShape, sample
from suggestion_services.enas.training import ControllerState, TrainingSettings, learn, learning_rate_for

NUMBER_LABEL = "enas.suggestion.katib.kubeflow.org/number"
"""Label with the index of a trial's suggestion, from 0."""

_MAX_CHOICES = 10_000
_MAX_LAYERS = 500
"""Beyond these, weights and architectures need hundreds of megabytes, and a search has no effect."""
_USUAL_TRIALS = 1_000  # of a search without a budget
_KEPT = 32
_KEPT_BYTES = 50_000_000
"""For cached states of the controller, at least two; with 64 hidden units one takes a megabyte."""


@dataclass(frozen=True, slots=True)
class _Experience:
    """The architecture and the reward of a trial."""

    architecture: Architecture
    reward: float


class Enas(Algorithm):
    """The algorithm `enas`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        config = problem.nas or NasConfig()
        self._config = config
        self._choices = choices_of(config)
        self._shape = _shape_of(problem, len(self._choices))
        settings = problem.settings
        steps = settings.whole("controller_train_steps", 50)
        usual_rate = learning_rate_for(problem.max_trial_count or _USUAL_TRIALS, steps)
        self._training = TrainingSettings(
            entropy_weight=settings.optional_number("controller_entropy_weight", 0.1) or 0.0,
            baseline_decay=settings.number("controller_baseline_decay", 0.999),
            learning_rate=settings.number("controller_learning_rate", usual_rate),
            skip_target=settings.number("controller_skip_target", 0.4),
            skip_weight=settings.optional_number("controller_skip_weight", 0.8) or 0.0,
            steps=steps,
        )
        self._history = _ControllerHistory(self._shape, self._training, problem.seed_of(-1))

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        config = problem.nas or NasConfig()
        count, layers = count_choices(config), config.graph_config.num_layers or 0
        errors = []
        if count > _MAX_CHOICES:
            cause = f"{count} operations with their values are more than {_MAX_CHOICES}"
            errors.append(FieldError(f"{PATH}.operations", cause, "use larger steps", "operations-too-many"))
        if layers > _MAX_LAYERS:
            cause = f"{layers} is above {_MAX_LAYERS}"
            errors.append(FieldError(f"{PATH}.graphConfig.numLayers", cause, "use fewer layers", "layers-too-many"))
        return errors

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Proposal]:
        theta = self._history.after(self._experiences(trials)).theta
        for k in range(first, first + count):
            architecture = sample(self._shape, theta, self.problem.random(k))
            yield Proposal(
                {
                    "architecture": json.dumps([list(layer) for layer in architecture]),
                    "nn_config": described(self._config, architecture, self._choices),
                },
                {NUMBER_LABEL: str(k)},
            )

    def _experiences(self, trials: Sequence[PastTrial]) -> list[_Experience]:
        """Return the experiences of the ended trials, in the order of their suggestions."""
        found = []
        for trial in trials:
            if trial.outcome not in (TrialOutcome.MEASURED, TrialOutcome.BAD) or trial.is_earlier:
                continue
            architecture = read_architecture(trial.assignments.get("architecture", ""), self._shape)
            if architecture is not None:
                reward = trial.objective if self.problem.maximize else -trial.objective
                found.append((_number_of(trial.labels), _Experience(architecture, reward)))
        return [experience for _, experience in sorted(found, key=lambda entry: entry[0])]


class _ControllerHistory:
    """The controller after any prefix of the history; the latest states are cached."""

    def __init__(self, shape: ControllerShape, training: TrainingSettings, seed: int) -> None:
        self._shape = shape
        self._training = training
        self._seed = seed
        length = sum(map(math.prod, shape.sizes.values()))
        self._kept = max(2, min(_KEPT, _KEPT_BYTES // (3 * 8 * length)))
        self._past: list[_Experience] = []
        self._states: dict[int, ControllerState] = {}

    def after(self, experiences: Sequence[_Experience]) -> ControllerState:
        """Return the controller that has learned from these, in this order."""
        same = _common(self._past, experiences)
        start = max((number for number in self._states if number <= same), default=0)
        state = self._states.get(start) or ControllerState.nothing(self._shape.initial(self._seed))
        self._states = {number: kept for number, kept in self._states.items() if number <= same}
        self._past = list(experiences[:start])
        for number, experience in enumerate(experiences[start:], start=start + 1):
            state = learn(self._shape, self._training, state, experience.architecture, experience.reward)
            self._past.append(experience)
            self._states[number] = state
            if len(self._states) > self._kept:
                del self._states[min(self._states)]
        return state


def _common(one: Sequence[_Experience], other: Sequence[_Experience]) -> int:
    """Return the length of the common prefix."""
    for i, (left, right) in enumerate(zip(one, other, strict=False)):
        if left.architecture != right.architecture or repr(left.reward) != repr(right.reward):  # NaN equals NaN
            return i
    return min(len(one), len(other))


def described(config: NasConfig, architecture: Architecture, choices: Sequence[OperationChoice]) -> str:
    """Return the network's sizes and its operations, as JSON with single quotes."""
    used = dict.fromkeys(layer[0] for layer in architecture)
    network: Mapping[str, object] = {
        "num_layers": config.graph_config.num_layers,
        "input_sizes": list(config.graph_config.input_sizes),
        "output_sizes": list(config.graph_config.output_sizes),
        "embedding": {
            str(number): {
                "opt_id": number,
                "opt_type": choices[number].type,
                "opt_params": choices[number].values,
            }
            for number in used
        },
    }
    return json.dumps(network).replace('"', "'")


def read_architecture(text: str, shape: ControllerShape) -> Architecture | None:
    """Return the architecture of a trial; None if this search cannot have suggested it."""
    try:
        data = json.loads(text)
    except ValueError:
        return None
    if not isinstance(data, list) or len(data) != shape.layers:
        return None
    for i, layer in enumerate(data):
        if not isinstance(layer, list) or len(layer) != i + 1 or not all(type(entry) is int for entry in layer):
            return None
        if not 0 <= layer[0] < shape.operations or not {0, 1}.issuperset(layer[1:]):
            return None
    return tuple(map(tuple, data))


def _number_of(labels: Mapping[str, str]) -> float:
    """Return the suggestion index of a trial; those of other services come first."""
    text = labels.get(NUMBER_LABEL, "")
    return float(text) if text.isascii() and text.isdigit() else -math.inf


def _shape_of(problem: Problem, operations: int) -> ControllerShape:
    settings = problem.settings
    config = problem.nas or NasConfig()
    return ControllerShape(
        layers=config.graph_config.num_layers or 1,
        operations=operations,
        hidden=settings.whole("controller_hidden_size", 64),
        temperature=settings.optional_number("controller_temperature", 5.0),
        bound=settings.optional_number("controller_tanh_const", 2.25),
    )
