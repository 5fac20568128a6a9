"""Search the layers of a small network by gradients, as DARTS does, and print the genotype that was found.

The data are sequences of 24 numbers: a short bump of one of three shapes, somewhere in noise. Each layer is a mixture
of all operations, weighted by a softmax over its own row of alphas. The network's weights learn from one half of the
data, the alphas from the other half, in turn. At the end each layer keeps the operation with the largest weight.
Needs NumPy only; gradients of the mixture are written out below.
"""

import argparse
import json

import numpy as np

LENGTH, CLASSES, EXAMPLES, CHANNELS = 24, 3, 600, 6
SHAPES = np.array([[0, 1, 2, 1, 0], [0, 2, 0, -2, 0], [2, -1, 0, -1, 2]])


def sequences(random):
    """Return sequences of shape (EXAMPLES, LENGTH, 1), and their classes."""
    classes = random.integers(CLASSES, size=EXAMPLES)
    data = random.normal(0, 0.4, (EXAMPLES, LENGTH))
    for row, place, one in zip(data, random.integers(LENGTH - 5, size=EXAMPLES), classes, strict=True):
        row[place : place + 5] += SHAPES[one]
    return data[..., None], classes


def shifted(layer, size):
    """Return each place's neighbours: shape (count, length, channels, size)."""
    low = size // 2
    padded = np.pad(layer, ((0, 0), (low, size - 1 - low), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(padded, size, axis=1)


def unshifted(slope, size):
    """Return the slope by the layer from that by its neighbourhoods."""
    low = size // 2
    count, length, channels, _ = slope.shape
    padded = np.zeros((count, length + size - 1, channels))
    for i in range(size):
        padded[:, i : i + length] += slope[..., i]
    return padded[:, low : low + length]


class Convolution:
    """A filter of some size over all channels, with rectified output."""

    def __init__(self, size, random):
        self.size = size
        self.weights = random.normal(0, np.sqrt(2 / (size * CHANNELS)), (CHANNELS * size, CHANNELS))
        self.speed = np.zeros_like(self.weights)

    def forward(self, layer):
        windows = shifted(layer, self.size)
        self.windows = windows.reshape(*windows.shape[:2], -1)
        self.output = np.maximum(self.windows @ self.weights, 0)
        return self.output

    def backward(self, slope):
        slope = slope * (self.output > 0)
        self.slope = np.einsum("nli,nlo->io", self.windows, slope)
        by_windows = slope @ self.weights.T
        return unshifted(by_windows.reshape(*slope.shape[:2], CHANNELS, self.size), self.size)


class Pooling:
    """The largest value, or the mean, of a neighbourhood."""

    weights = None

    def __init__(self, size, kind):
        self.size, self.kind = size, kind

    def forward(self, layer):
        windows = shifted(layer, self.size)
        self.largest = windows == windows.max(axis=-1, keepdims=True)
        return windows.max(axis=-1) if self.kind == "max" else windows.mean(axis=-1)

    def backward(self, slope):
        shares = self.largest / self.largest.sum(axis=-1, keepdims=True) if self.kind == "max" else 1 / self.size
        return unshifted(slope[..., None] * shares * np.ones(self.size), self.size)


class Skip:
    """What comes in goes out."""

    weights = None

    def forward(self, layer):
        return layer

    def backward(self, slope):
        return slope


def an_operation(name, random):
    """Return the operation that a name such as max_pooling_3x3 stands for."""
    if name == "skip_connection":
        return Skip()
    kind, _, size = name.rpartition("_")
    size = int(size.partition("x")[0])
    if kind.endswith("pooling"):
        return Pooling(size, kind.partition("_")[0])
    return Convolution(size, random)


def softmax(scores):
    """Return probabilities along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class Network:
    """Mixed layers between a fixed widening of the input and a linear layer on the largest values."""

    def __init__(self, names, layers, random):
        self.layers = [[an_operation(name, random) for name in names] for _ in range(layers)]
        self.alphas = np.zeros((layers, len(names)))
        self.widen = random.normal(0, 1, (1, CHANNELS))
        self.last = np.zeros((CHANNELS, CLASSES))
        self.last_speed = np.zeros_like(self.last)

    def scores(self, data):
        layer = data @ self.widen
        self.outputs = []
        for operations, weights in zip(self.layers, softmax(self.alphas), strict=True):
            self.outputs.append([operation.forward(layer) for operation in operations])
            layer = sum(weight * output for weight, output in zip(weights, self.outputs[-1], strict=True))
        self.final, self.pooled = layer, layer.max(axis=1)
        return self.pooled @ self.last

    def learn(self, data, classes):
        """Compute the slopes of the cross entropy by everything, and return it."""
        probabilities = softmax(self.scores(data))
        rows = np.arange(len(classes))
        loss = -np.log(probabilities[rows, classes] + 1e-12).mean()
        probabilities[rows, classes] -= 1
        by_scores = probabilities / len(classes)
        self.last_slope = self.pooled.T @ by_scores
        is_largest = self.final == self.pooled[:, None]
        slope = is_largest * (by_scores @ self.last.T)[:, None]
        self.alpha_slope = np.zeros_like(self.alphas)
        mixtures = softmax(self.alphas)
        for i in range(len(self.layers) - 1, -1, -1):
            weights = mixtures[i]
            by_weights = np.array([(slope * output).sum() for output in self.outputs[i]])
            self.alpha_slope[i] = weights * (by_weights - weights @ by_weights)
            before = 0
            for operation, weight in zip(self.layers[i], weights, strict=True):
                before = before + operation.backward(slope * weight)
            slope = before
        return loss


def step(values, speed, slope, rate, momentum, decay, clip):
    """Move values against their slope, in place."""
    slope = slope + decay * values
    slope *= min(1.0, clip / (np.linalg.norm(slope) + 1e-12))
    speed *= momentum
    speed += slope
    values -= rate * speed


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--algorithm-settings", required=True)
parser.add_argument("--search-space", required=True)
parser.add_argument("--num-layers", type=int, required=True)
args = parser.parse_args()

settings = json.loads(args.algorithm_settings.replace("'", '"'))
names = json.loads(args.search_space.replace("'", '"'))
number = {name: float(value) for name, value in settings.items() if name != "batch_size"}
batch_size = int(settings["batch_size"] or EXAMPLES)
epochs = int(number["num_epochs"])

random = np.random.default_rng(1)
data, classes = sequences(random)
train, choose = np.arange(EXAMPLES // 2), np.arange(EXAMPLES // 2, EXAMPLES)
network = Network(names, args.num_layers, random)
alpha_speed = np.zeros_like(network.alphas)
for epoch in range(epochs):
    cosine = (1 + np.cos(np.pi * epoch / epochs)) / 2
    rate = number["w_lr_min"] + (number["w_lr"] - number["w_lr_min"]) * cosine
    order = random.permutation(train)
    for start in range(0, len(order), batch_size):
        batch, other = order[start : start + batch_size], random.choice(choose, batch_size)
        network.learn(data[other], classes[other])
        alpha = number["alpha_lr"], 0.0, number["alpha_weight_decay"], number["w_grad_clip"]
        step(network.alphas, alpha_speed, network.alpha_slope, *alpha)
        network.learn(data[batch], classes[batch])
        weight = rate, number["w_momentum"], number["w_weight_decay"], number["w_grad_clip"]
        step(network.last, network.last_speed, network.last_slope, *weight)
        for operation in (operation for layer in network.layers for operation in layer):
            if operation.weights is not None:
                step(operation.weights, operation.speed, operation.slope, *weight)
    accuracy = np.mean(network.scores(data[choose]).argmax(axis=1) == classes[choose])
    print(f"epoch {epoch + 1}: accuracy {accuracy:.4f}", flush=True)

shares = softmax(network.alphas)
best = [(names[i], round(float(row[i]), 3)) for row, i in zip(shares, shares.argmax(axis=1), strict=True)]
print(f"Best-Genotype=Genotype(layers={best})")
