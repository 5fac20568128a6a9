"""Train the network that `enas` describes on generated pictures, and print its accuracy after each epoch.

A picture of 8 x 8 pixels belongs to one of four classes: stripes that run in one of four directions, noisy and shifted.
Layers are small convolutions or pooling. Only the last layer is trained; the filters of the others are random, which is
enough to tell good architectures from bad ones within a second. Needs NumPy only.
"""

import argparse
import json

import numpy as np

SIZE, CLASSES = 8, 4


def pictures(random, count):
    """Return pictures of shape (count, SIZE, SIZE, 1), and their classes."""
    classes = random.integers(CLASSES, size=count)
    row, column = np.mgrid[:SIZE, :SIZE]
    directions = np.array([row, column, row + column, row - column])
    phases = random.uniform(0, 2 * np.pi, (count, 1, 1))
    clean = np.sin(directions[classes] * 1.3 + phases)
    return (clean + random.normal(0, 1.0, clean.shape))[..., None], classes


def neighbourhoods(layer, size):
    """Return all squares of a layer: shape (count, height, width, size, size, channels)."""
    low = size // 2
    padded = np.pad(layer, ((0, 0), (low, size - 1 - low), (low, size - 1 - low), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(1, 2))
    return np.moveaxis(windows, 3, 5)


def apply(operation, layer, random):
    """Return what a layer makes of its input. All keep height and width, so that any layers can be linked."""
    values = operation["opt_params"]
    if operation["opt_type"] == "convolution":
        size, filters = int(values["filter_size"]), int(values["num_filter"])
        inputs = size * size * layer.shape[-1]
        weights = random.normal(0, np.sqrt(2 / inputs), (inputs, filters))
        return np.maximum(neighbourhoods(layer, size).reshape(*layer.shape[:3], inputs) @ weights, 0)
    squares = neighbourhoods(layer, values["pool_size"])
    pool = np.max if values["reduction_type"] == "max_pooling" else np.mean
    return pool(squares, axis=(3, 4))


def features(architecture, embedding, data):
    """Return what the last layer is trained on: the mean of each channel over the picture."""
    random = np.random.default_rng(0)
    outputs = []
    previous = data
    for number, *links in architecture:
        linked = [outputs[i] for i, link in enumerate(links) if link]
        joined = np.concatenate([previous, *linked], axis=-1)
        previous = apply(embedding[str(number)], joined, random)
        outputs.append(previous)
    found = previous.mean(axis=(1, 2))
    return (found - found.mean(axis=0)) / (found.std(axis=0) + 1e-6)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--architecture", required=True)
parser.add_argument("--nn_config", required=True)
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

embedding = json.loads(args.nn_config.replace("'", '"'))["embedding"]
random = np.random.default_rng(1)
data, classes = pictures(random, 1200)
inputs = features(json.loads(args.architecture), embedding, data)
inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
train, test = slice(0, 800), slice(800, None)
weights = np.zeros((inputs.shape[1], CLASSES))
wanted = np.eye(CLASSES)[classes]
for _ in range(args.epochs):
    for start in range(0, 800, 50):
        batch = slice(start, start + 50)
        scores = inputs[batch] @ weights
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        slope = inputs[batch].T @ (powers / powers.sum(axis=1, keepdims=True) - wanted[batch]) / 50
        weights -= 0.3 * slope
    accuracy = np.mean((inputs[test] @ weights).argmax(axis=1) == classes[test])
    print(f"Validation-Accuracy={accuracy:.4f}", flush=True)
