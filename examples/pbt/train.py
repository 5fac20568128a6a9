"""Train a small network on three noisy spirals for some epochs, from a checkpoint if there is one, and leave the next.

Only NumPy. The directory of the checkpoint is empty for a network that begins, and otherwise holds what the trial left
whose training this one continues with.
"""

import argparse
import os
from pathlib import Path

import numpy as np

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--checkpoints", type=Path, default=os.environ.get("KATIB_CHECKPOINT_DIR", "checkpoint"))
args = parser.parse_args()

ARMS, HIDDEN, BATCH = 3, 48, 32


def spirals(random: np.random.Generator, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points on intertwined arms, and the arm of each."""
    arms = random.integers(ARMS, size=points)
    radius = np.sqrt(random.uniform(0.02, 1, size=points))
    angle = 2 * np.pi * (arms / ARMS + 1.5 * radius) + random.normal(0, 0.15, size=points)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), arms


def forward(weights: dict[str, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what both hidden layers and the output say."""
    first = np.tanh(x @ weights["w1"] + weights["b1"])
    second = np.tanh(first @ weights["w2"] + weights["b2"])
    scores = second @ weights["w3"] + weights["b3"]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return first, second, shares / shares.sum(axis=1, keepdims=True)


def gradients(weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return the gradients of the cross entropy."""
    first, second, shares = forward(weights, x)
    output = (shares - np.eye(ARMS)[y]) / len(x)
    upper = output @ weights["w3"].T * (1 - second**2)
    lower = upper @ weights["w2"].T * (1 - first**2)
    found = {"w3": second.T @ output, "w2": first.T @ upper, "w1": x.T @ lower}
    return found | {"b3": output.sum(axis=0), "b2": upper.sum(axis=0), "b1": lower.sum(axis=0)}


def begin() -> dict[str, np.ndarray]:
    """Return the state of a network that has not been trained: its weights, their velocities and its age in epochs."""
    random = np.random.default_rng(0)
    sizes = [2, HIDDEN, HIDDEN, ARMS]
    weights = {f"w{i + 1}": random.normal(0, 1 / np.sqrt(sizes[i]), size=sizes[i : i + 2]) for i in range(3)}
    weights |= {f"b{i + 1}": np.zeros(sizes[i + 1]) for i in range(3)}
    return weights | {f"v_{name}": np.zeros_like(value) for name, value in weights.items()} | {"age": np.array(0)}


train_x, train_y = spirals(np.random.default_rng(1), 600)
test_x, test_y = spirals(np.random.default_rng(2), 600)
file = args.checkpoints / "network.npz"
state = dict(np.load(file)) if file.exists() else begin()
names = [name.removeprefix("v_") for name in state if name.startswith("v_")]
for _ in range(args.epochs):
    order = np.random.default_rng(int(state["age"])).permutation(len(train_x))
    for batch in np.split(order, range(BATCH, len(order), BATCH)):
        found = gradients(state, train_x[batch], train_y[batch])
        for name in names:
            state[f"v_{name}"] = args.momentum * state[f"v_{name}"] - args.lr * found[name]
            state[name] = state[name] + state[f"v_{name}"]
    state["age"] = state["age"] + 1
args.checkpoints.mkdir(parents=True, exist_ok=True)
np.savez(file, **state)
shares = forward(state, test_x)[2]
loss = -np.log(shares[np.arange(len(test_y)), test_y] + 1e-12).mean()
print(f"epoch={state['age']} loss={loss:.4f} accuracy={(shares.argmax(axis=1) == test_y).mean():.4f}")
