"""The controller of an architecture search: an LSTM that chooses the operations and links of a network, layer by layer.

Notation: L layers, n operations, h hidden units; theta, all weights as one vector. For each layer the cell runs twice:
on the layer's input it scores the n operations, and on the embedding of the chosen one it scores a link (a skip
connection) to each earlier layer by attention. A layer's input is the sum of the states of linked layers divided by one
more than their number; that of the first two layers is a learned vector.

Scores are divided by a temperature and bounded by a hyperbolic tangent. Operations are chosen by softmax; a link with
score z exists with probability sigmoid(2 z), which is a softmax over -z and z.

Source: [Pham2018] Efficient Neural Architecture Search via Parameter Sharing, ICML, section 2 and its published code
for details that the paper leaves open. Differs: the gradients are written out, in NumPy; see `training` for more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Architecture = tuple[tuple[int, ...], ...]
"""One tuple per layer: number of the operation, and for each earlier layer 1 where it is linked, else 0."""

_START = 0.01
"""Weights start uniform between plus and minus this, so that at first all choices are equally probable [Pham2018]."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the controller is like.

    Attributes:
        layers: L, at least 1.
        operations: n, at least 1.
        hidden: h, at least 1.
        temperature: What scores are divided by; None: nothing.
        bound: What the absolute value of scores stays below; None: nothing.
    """

    layers: int
    operations: int
    hidden: int = 64
    temperature: float | None = 5.0
    bound: float | None = 2.25

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights by name, in the order in which theta holds them."""
        h, n = self.hidden, self.operations
        return {
            "cell": (2 * h, 4 * h),
            "first": (h,),
            "embedding": (n, h),
            "scores": (h, n),
            "anchor": (h, h),
            "query": (h, h),
            "attention": (h,),
        }

    def views(self, theta: FloatArray) -> dict[str, FloatArray]:
        """Return the weights by name: views of theta."""
        views, start = {}, 0
        for name, size in self.sizes.items():
            length = math.prod(size)
            views[name] = theta[start : start + length].reshape(size)
            start += length
        return views

    def initial(self, seed: int) -> FloatArray:
        """Return the weights that the search begins with."""
        length = sum(map(math.prod, self.sizes.values()))
        return np.random.default_rng(seed).uniform(-_START, _START, length)

    def squash(self, raw: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return scores from raw ones, and their derivatives."""
        scale = 1.0 if self.temperature is None else 1.0 / self.temperature
        if self.bound is None:
            return raw * scale, np.full_like(raw, scale)
        bent = np.tanh(raw * scale)
        return self.bound * bent, self.bound * scale * (1.0 - bent * bent)


@dataclass(slots=True)
class _Step:
    """What a run of the cell leaves for the way back."""

    inputs: FloatArray
    gates: FloatArray
    cell_before: FloatArray
    cell: FloatArray


@dataclass(slots=True)
class _Layer:
    """What a layer leaves for the way back. `link_*` are empty in the first layer."""

    operation: int
    links: FloatArray
    steps: tuple[_Step, _Step]
    operation_state: FloatArray
    link_state: FloatArray
    slope: FloatArray
    link_slope: FloatArray
    keys: FloatArray


@dataclass(slots=True)
class Pass:
    """An architecture and how the controller came to it.

    Attributes:
        architecture: What was chosen.
        scores: For each layer those of the operations, shape (n,).
        link_scores: For each layer those of links to earlier layers, shape (layer,).
    """

    scores: list[FloatArray] = field(default_factory=list)
    link_scores: list[FloatArray] = field(default_factory=list)
    layers: list[_Layer] = field(default_factory=list)

    @property
    def architecture(self) -> Architecture:
        """What was chosen."""
        return tuple((layer.operation, *(int(link) for link in layer.links)) for layer in self.layers)


Decide = Callable[[int, FloatArray], int]
DecideLinks = Callable[[int, FloatArray], Sequence[int]]


def sample(shape: Shape, theta: FloatArray, random: Random) -> Architecture:
    """Return an architecture drawn with the probabilities that the controller gives."""

    def operation(_: int, scores: FloatArray) -> int:
        place = float(random.random())
        return min(int(np.searchsorted(np.cumsum(softmax(scores)), place, side="right")), scores.size - 1)

    def links(_: int, scores: FloatArray) -> Sequence[int]:
        return [int(random.random() < p) for p in link_probability(scores)]

    return _run(shape, theta, operation, links).architecture


def replay(shape: Shape, theta: FloatArray, architecture: Architecture) -> Pass:
    """Return how the controller comes to a given architecture."""
    return _run(shape, theta, lambda i, _: architecture[i][0], lambda i, _: architecture[i][1:])


def softmax(scores: FloatArray) -> FloatArray:
    """Return probabilities of the choices."""
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())


def link_probability(scores: FloatArray) -> FloatArray:
    """Return the probability of each link."""
    return 0.5 * (1.0 + np.tanh(scores))  # sigmoid(2 z)


def _run(shape: Shape, theta: FloatArray, decide: Decide, decide_links: DecideLinks) -> Pass:
    w = shape.views(theta)
    h = shape.hidden
    state, cell, inputs = np.zeros(h), np.zeros(h), w["first"]
    states = np.empty((shape.layers, h))
    keys = np.empty((shape.layers, h))
    found = Pass()
    for i in range(shape.layers):
        operation_state, cell, first = _cell(w["cell"], inputs, state, cell)
        scores, slope = shape.squash(operation_state @ w["scores"])
        operation = decide(i, scores)
        state, cell, second = _cell(w["cell"], w["embedding"][operation], operation_state, cell)
        bent = np.tanh(keys[:i] + state @ w["query"])
        link_scores, link_slope = shape.squash(bent @ w["attention"])
        links = np.array(decide_links(i, link_scores), dtype=np.float64)
        inputs = links @ states[:i] / (1.0 + links.sum()) if i else w["first"]
        states[i], keys[i] = state, state @ w["anchor"]
        found.scores.append(scores)
        found.link_scores.append(link_scores)
        found.layers.append(_Layer(operation, links, (first, second), operation_state, state, slope, link_slope, bent))
    return found


def gradient(
    shape: Shape,
    theta: FloatArray,
    passed: Pass,
    by_scores: Sequence[FloatArray],
    by_link_scores: Sequence[FloatArray],
) -> FloatArray:
    """Return the derivative of a loss by theta, shape as theta.

    Args:
        shape: Of the controller.
        theta: The weights with which the pass was made.
        passed: The pass.
        by_scores: Derivative of the loss by the scores of the operations, for each layer.
        by_link_scores: The same by the scores of links.
    """
    w, h = shape.views(theta), shape.hidden
    result = np.zeros_like(theta)
    g = shape.views(result)
    states = np.array([layer.link_state for layer in passed.layers])
    by_states = np.zeros_like(states)
    by_state, by_cell = np.zeros(h), np.zeros(h)
    by_gates = np.empty((2 * shape.layers, 4 * h))
    by_next_inputs = np.zeros(h)  # of the input that this layer makes for the next one
    for i in range(shape.layers - 1, -1, -1):
        layer = passed.layers[i]
        if i:
            by_states[:i] += np.outer(layer.links / (1.0 + layer.links.sum()), by_next_inputs)
        else:
            g["first"] += by_next_inputs
        by_state = by_state + by_states[i]
        if i:
            by_raw = by_link_scores[i] * layer.link_slope
            g["attention"] += by_raw @ layer.keys
            by_bent = np.outer(by_raw, w["attention"]) * (1.0 - layer.keys * layer.keys)
            g["anchor"] += states[:i].T @ by_bent
            by_states[:i] += by_bent @ w["anchor"].T
            total = by_bent.sum(axis=0)
            g["query"] += np.outer(layer.link_state, total)
            by_state += w["query"] @ total
        by_gates[2 * i + 1], by_cell = _cell_back(layer.steps[1], by_state, by_cell)
        by_joined = w["cell"] @ by_gates[2 * i + 1]
        by_embedding, by_state = by_joined[:h], by_joined[h:]
        g["embedding"][layer.operation] += by_embedding
        by_raw = by_scores[i] * layer.slope
        g["scores"] += np.outer(layer.operation_state, by_raw)
        by_state = by_state + w["scores"] @ by_raw
        by_gates[2 * i], by_cell = _cell_back(layer.steps[0], by_state, by_cell)
        by_joined = w["cell"] @ by_gates[2 * i]
        by_next_inputs, by_state = by_joined[:h], by_joined[h:]
    g["first"] += by_next_inputs
    g["cell"] += np.array([step.inputs for layer in passed.layers for step in layer.steps]).T @ by_gates
    return result


def _cell(
    weights: FloatArray, inputs: FloatArray, state: FloatArray, cell: FloatArray
) -> tuple[FloatArray, FloatArray, _Step]:
    """Return state and cell after one step; the gates are input, forget, output and candidate, without biases."""
    h = state.size
    joined = np.concatenate((inputs, state))
    raw = joined @ weights
    gates = np.tanh(raw * np.repeat((0.5, 0.5, 0.5, 1.0), h))
    gates[: 3 * h] = 0.5 * (1.0 + gates[: 3 * h])
    after = gates[:h] * gates[3 * h :] + gates[h : 2 * h] * cell
    return gates[2 * h : 3 * h] * np.tanh(after), after, _Step(joined, gates, cell, after)


def _cell_back(step: _Step, by_state: FloatArray, by_cell: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the derivatives by the gates before their bending, shape (4 h,), and by the cell before the step."""
    enter, forget, leave, candidate = step.gates.reshape(4, by_state.size)
    bent = np.tanh(step.cell)
    by_cell = by_cell + by_state * leave * (1.0 - bent * bent)
    by_raw = np.concatenate(
        (
            by_cell * candidate * enter * (1.0 - enter),
            by_cell * step.cell_before * forget * (1.0 - forget),
            by_state * bent * leave * (1.0 - leave),
            by_cell * enter * (1.0 - candidate * candidate),
        )
    )
    return by_raw, by_cell * forget
