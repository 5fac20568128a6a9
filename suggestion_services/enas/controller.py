"""The controller of an architecture search: an LSTM that chooses the operations and links of a network, layer by layer.

Notation: L layers, n operations, h hidden units; theta, all weights as one vector. For each layer the cell runs twice:
on the layer's input it scores the n operations, and on the embedding of the chosen one it scores a link (a skip
connection) to each earlier layer by attention. A layer's input is the sum of the states of linked layers divided by one
more than their number; that of the first two layers is a learned vector.

Scores are divided by a temperature and bounded by a hyperbolic tangent. Operations are chosen by softmax; a link with
score z exists with probability sigmoid(2 z), which is a softmax over -z and z.

Source: [Pham2018] Efficient Neural Architecture Search via Parameter Sharing, ICML, section 2 and its published code
for details that the paper omits. Differs: the gradients are written out, in NumPy; see `training` for more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Architecture = tuple[tuple[int, ...], ...]
"""One tuple per layer: index of the operation, and for each earlier layer 1 if it is linked, else 0."""

_START = 0.01
"""Weights start uniform between plus and minus this, so that at first all choices are equally probable [Pham2018]."""


@dataclass(frozen=True, slots=True)
class ControllerShape:
    """Dimensions and score limits of the controller.

    Attributes:
        layers: L, at least 1.
        operations: n, at least 1.
        hidden: h, at least 1.
        temperature: Divisor of scores; None: no division.
        bound: Upper limit of the absolute value of scores; None: no limit.
    """

    layers: int
    operations: int
    hidden: int = 64
    temperature: float | None = 5.0
    bound: float | None = 2.25

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights by name, in their order in theta."""
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
class CellRuns:
    """Intermediate values of the cell's runs for the backward pass, two for each layer; r counts them from 0.

    Attributes:
        joined: Inputs and states (2 L, 2 h) before each.
        gates: Input, forget, output and candidate (2 L, 4 h), without biases.
        cells: Before the first and after each, shape (2 L + 1, h).
        bent: Hyperbolic tangents (2 L, h) of the cells after each.
    """

    joined: FloatArray
    gates: FloatArray
    cells: FloatArray
    bent: FloatArray

    @classmethod
    def none(cls, layers: int, hidden: int) -> CellRuns:
        n, h = 2 * layers, hidden
        return cls(np.zeros((n, 2 * h)), np.empty((n, 4 * h)), np.zeros((n + 1, h)), np.empty((n, h)))

    def run(self, r: int, weights: FloatArray, inputs: FloatArray, state: FloatArray) -> FloatArray:
        """Return the state after the r-th run."""
        h = state.size
        joined, gates, after = self.joined[r], self.gates[r], self.cells[r + 1]
        joined[:h], joined[h:] = inputs, state
        np.matmul(joined, weights, out=gates)
        sigmoids = gates[: 3 * h]
        sigmoids *= 0.5
        np.tanh(gates, out=gates)
        sigmoids += 1.0
        sigmoids *= 0.5
        np.multiply(gates[:h], gates[3 * h :], out=after)
        after += gates[h : 2 * h] * self.cells[r]
        np.tanh(after, out=self.bent[r])
        return np.asarray(gates[2 * h : 3 * h] * self.bent[r])

    def slopes(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the derivatives that are independent of the backward pass.

        They are those of the cells by the gates before their activation (2 L, 4, h), except the output gate's, which
        are of the states; of the cells by the states (2 L, h); and of the cells by the cells before (2 L, h).
        """
        n, h = self.bent.shape
        enter, forget, leave, candidate = (self.gates.reshape(n, 4, h)[:, j] for j in range(4))
        by_gates = np.empty((n, 4, h))
        by_gates[:, 0] = candidate * enter * (1.0 - enter)
        by_gates[:, 1] = self.cells[:-1] * forget * (1.0 - forget)
        by_gates[:, 2] = self.bent * leave * (1.0 - leave)
        by_gates[:, 3] = enter * (1.0 - candidate * candidate)
        return by_gates, leave * (1.0 - self.bent * self.bent), forget


@dataclass(slots=True)
class ForwardPass:
    """The forward pass of an architecture. P = L (L - 1) / 2 links are possible.

    Attributes:
        architecture: The choices.
        operations: Of each layer, shape (L,).
        links: 1.0 if two layers are linked, else 0.0; shape (P,).
        scores: Of the operations of each layer, shape (L, n).
        all_link_scores: Shape (P,).
        steps: Of the cell.
        shares: Weights of the states of earlier layers in the next input of each, shape (L, L).
        operation_states: States that score operations, shape (L, h).
        states: States that score links, shape (L, h).
        slopes: Of the scores, shape (L, n).
        link_slopes: Of the scores of links, shape (P,).
        matches: Vectors that score links, shape (P, h).
    """

    architecture: Architecture
    operations: IntArray
    links: FloatArray
    scores: FloatArray
    all_link_scores: FloatArray
    steps: CellRuns
    shares: FloatArray
    operation_states: FloatArray
    states: FloatArray
    slopes: FloatArray
    link_slopes: FloatArray
    matches: FloatArray

    @property
    def link_scores(self) -> list[FloatArray]:
        """For each layer the scores of its links to earlier ones."""
        return [self.all_link_scores[i * (i - 1) // 2 : i * (i + 1) // 2] for i in range(len(self.scores))]


def sample(shape: ControllerShape, theta: FloatArray, random: Random) -> Architecture:
    """Return an architecture drawn with the controller's probabilities."""
    w, steps = shape.views(theta), CellRuns.none(shape.layers, shape.hidden)
    state, inputs = np.zeros(shape.hidden), w["first"]
    states, keys = np.empty((2, shape.layers, shape.hidden))
    found: list[tuple[int, ...]] = []
    for i in range(shape.layers):
        state = steps.run(2 * i, w["cell"], inputs, state)
        scores = shape.squash(state @ w["scores"])[0]
        place = float(random.random())
        operation = min(int(np.searchsorted(np.cumsum(softmax(scores)), place, side="right")), scores.size - 1)
        state = steps.run(2 * i + 1, w["cell"], w["embedding"][operation], state)
        link_scores = shape.squash(np.tanh(keys[:i] + state @ w["query"]) @ w["attention"])[0]
        links = [int(random.random() < p) for p in link_probability(link_scores)]
        if i:
            inputs = np.array(links, dtype=np.float64) @ states[:i] / (1.0 + sum(links))
        states[i], keys[i] = state, state @ w["anchor"]
        found.append((operation, *links))
    return tuple(found)


def replay(shape: ControllerShape, theta: FloatArray, architecture: Architecture) -> ForwardPass:
    """Return the forward pass of a given architecture.

    Only the runs of the cell are sequential; scores are computed for all layers at once.
    """
    w, count = shape.views(theta), shape.layers
    later, earlier = _pairs(count)
    operations = np.array([layer[0] for layer in architecture])
    links = np.array([link for layer in architecture for link in layer[1:]], dtype=np.float64)
    shares = np.zeros((count, count))
    shares[later, earlier] = links
    shares /= 1.0 + shares.sum(axis=1, keepdims=True)
    steps = CellRuns.none(count, shape.hidden)
    state, inputs = np.zeros(shape.hidden), w["first"]
    operation_states, states = np.zeros((2, count, shape.hidden))
    embedded = w["embedding"][operations]
    for i in range(count):
        operation_states[i] = steps.run(2 * i, w["cell"], inputs, state)
        states[i] = state = steps.run(2 * i + 1, w["cell"], embedded[i], operation_states[i])
        inputs = shares[i] @ states if i else w["first"]
    scores, slopes = shape.squash(operation_states @ w["scores"])
    matches = (states @ w["anchor"])[earlier]
    matches += (states @ w["query"])[later]
    np.tanh(matches, out=matches)
    link_scores, link_slopes = shape.squash(matches @ w["attention"])
    return ForwardPass(
        architecture,
        operations,
        links,
        scores,
        link_scores,
        steps,
        shares,
        operation_states,
        states,
        slopes,
        link_slopes,
        matches,
    )


@lru_cache(maxsize=4)
def _pairs(count: int) -> tuple[IntArray, IntArray]:
    """Return the later and the earlier layer of each possible link (P,)."""
    later, earlier = np.tril_indices(count, -1)
    return later, earlier


def softmax(scores: FloatArray) -> FloatArray:
    """Return probabilities of the choices, shape (..., n)."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def link_probability(scores: FloatArray) -> FloatArray:
    return 0.5 * (1.0 + np.tanh(scores))  # sigmoid(2 z)


def gradient(
    shape: ControllerShape, theta: FloatArray, passed: ForwardPass, by_scores: FloatArray, by_link_scores: FloatArray
) -> FloatArray:
    """Return the derivative of a loss by theta, shape as theta.

    Args:
        shape: Dimensions of the controller.
        theta: The weights of the pass.
        passed: The pass.
        by_scores: Derivative of the loss by the scores of the operations, shape (L, n).
        by_link_scores: Derivative of the loss by the scores of links, shape (P,).
    """
    w, h, count, steps = shape.views(theta), shape.hidden, shape.layers, passed.steps
    result = np.zeros_like(theta)
    g = shape.views(result)
    by_raw = by_scores * passed.slopes
    g["scores"] += passed.operation_states.T @ by_raw
    by_operation_states = by_raw @ w["scores"].T
    by_states = _by_states(w, g, passed, by_link_scores)
    by_gates, by_cells, forgotten = steps.slopes()
    by_outputs = by_gates[:, 2].copy()
    flat, cell, recurrent = by_gates.reshape(2 * count, 4 * h), w["cell"], w["cell"][h:]
    by_state, by_cell, by_inputs = np.zeros((3, h))  # by_inputs: of the inputs that a layer makes for the next one
    for i in range(count - 1, -1, -1):
        if i:
            by_states[:i] += passed.shares[i, :i, None] * by_inputs
        else:
            g["first"] += by_inputs
        for r, by_more in ((2 * i + 1, by_states[i]), (2 * i, by_operation_states[i])):
            by_state = by_state + by_more
            by_cell = by_cell + by_state * by_cells[r]
            by_gates[r] *= by_cell
            np.multiply(by_outputs[r], by_state, out=by_gates[r, 2])
            by_cell *= forgotten[r]
            if r % 2:
                by_state = recurrent @ flat[r]
        by_joined = cell @ flat[2 * i]
        by_inputs, by_state = by_joined[:h], by_joined[h:]
    g["first"] += by_inputs
    g["cell"] += steps.joined.T @ flat
    np.add.at(g["embedding"], passed.operations, flat[1::2] @ cell[:h].T)
    return result


def _by_states(
    w: dict[str, FloatArray], g: dict[str, FloatArray], passed: ForwardPass, by_link_scores: FloatArray
) -> FloatArray:
    """Return the derivative of the loss by the states (L, h) that score links, and add that of their weights."""
    later, earlier = _pairs(len(passed.states))
    by_raw = by_link_scores * passed.link_slopes
    g["attention"] += by_raw @ passed.matches
    by_matches = passed.matches * passed.matches
    np.subtract(1.0, by_matches, out=by_matches)
    by_matches *= w["attention"]
    by_matches *= by_raw[:, None]
    by_keys, by_queries = np.zeros((2, *passed.states.shape))
    np.add.at(by_keys, earlier, by_matches)
    np.add.at(by_queries, later, by_matches)
    g["anchor"] += passed.states.T @ by_keys
    g["query"] += passed.states.T @ by_queries
    return np.asarray(by_keys @ w["anchor"].T + by_queries @ w["query"].T)
