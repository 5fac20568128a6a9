"""Write the event files of this directory: `python make.py WRITER`, in an environment that has the writer.

| writer | environment | what it writes |
|---|---|---|
| `torch` | Python 3.11, torch 2.13.0, tensorboard 2.21.0 | old style, new style, doubles, a histogram, a text |
| `tensorboardx` | Python 3.11, tensorboardX 2.6.5 | `train` and `test`, three steps of two tags; one described |
| `tensorflow1` | Python 3.7, tensorflow 1.15.5, protobuf 3.20 | merged summaries, a graph; a name that is taken |
| `tensorflow2` | Python 3.11, tensorflow-cpu 2.21.0 | `train` and `test`, five steps of two tags; other types |
| `keras` | as tensorflow2, Keras 3.15.1 | what its TensorBoard callback writes in three epochs of training |

The files are small and stay as they are; tests read them without any of these packages. `tensorflow1` comes from a real
TensorFlow 1, not from the compatible module of TensorFlow 2.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

HERE = Path(__file__).resolve().parent


def loss(step: int) -> float:
    return 1 / (step + 1)


def accuracy(step: int) -> float:
    return 1 - 1 / (step + 2)


def write_torch(directory: Path) -> None:
    import torch
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(directory))
    for step in range(3):
        writer.add_scalar("train/loss", loss(step), step)
        writer.add_scalar("new", accuracy(step), step, new_style=True)
        writer.add_scalar("double", 0.1 * step, step, new_style=True, double_precision=True)
        writer.add_histogram("weights", torch.arange(3.0), step)
        writer.add_text("note", "loss=7", step)
    writer.close()


def write_tensorboardx(directory: Path) -> None:
    from tensorboardX import SummaryWriter

    for part in ("train", "test"):
        writer = SummaryWriter(str(directory / part))
        for step in range(3):
            writer.add_scalar("accuracy", accuracy(step), step)
            writer.add_scalar("loss", loss(step), step)
            writer.add_scalar("described", step, step, display_name="shown", summary_description="a description")
        writer.close()


def write_tensorflow1(directory: Path) -> None:
    import tensorflow as tf

    assert tf.__version__.startswith("1.")
    with tf.Session() as session:
        value = tf.placeholder(tf.float32, [], name="accuracy")
        tf.summary.scalar("accuracy", value)  # is called accuracy_1
        tf.summary.scalar("loss", 1 - value)
        tf.summary.histogram("values", tf.stack([value, value]))
        merged = tf.summary.merge_all()
        writer = tf.summary.FileWriter(str(directory), session.graph)
        for step in range(3):
            writer.add_summary(session.run(merged, {value: accuracy(step)}), step * 10)
        writer.close()


def write_tensorflow2(directory: Path) -> None:
    import tensorflow as tf

    for part in ("train", "test"):
        writer = tf.summary.create_file_writer(str(directory / part))
        with writer.as_default():
            for step in range(5):
                tf.summary.scalar("accuracy", accuracy(step), step=step)
                tf.summary.scalar("loss", loss(step), step=step)
        writer.close()
    writer = tf.summary.create_file_writer(str(directory / "types"))
    with writer.as_default():
        for dtype in (
            "float64",
            "float16",
            "bfloat16",
            "int8",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
        ):
            tf.summary.write(dtype, tf.constant(3, dtype=dtype), step=300)
        tf.summary.write("bool", tf.constant(True), step=300)
        tf.summary.write("one in a list", tf.constant([0.5]), step=300)
        tf.summary.write("two", tf.constant([0.5, 0.5]), step=300)
        tf.summary.write("text", tf.constant("3"), step=300)
        tf.summary.image("image", tf.zeros([1, 2, 2, 1]), step=300)
        tf.summary.scalar("nan", float("nan"), step=300)
        tf.summary.scalar("large step", 1.0, step=1 << 40)
        tf.summary.scalar("negative step", 1.0, step=-1)
    writer.close()


def write_keras(directory: Path) -> None:
    import keras
    import numpy as np

    inputs = np.arange(20.0).reshape(10, 2) / 20
    targets = (inputs[:, 0] > 0.5).astype("float32")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(1, activation="sigmoid")])
    model.compile(optimizer="sgd", loss="binary_crossentropy", metrics=["accuracy"])
    callback = keras.callbacks.TensorBoard(str(directory), write_graph=False)
    model.fit(inputs, targets, epochs=3, validation_data=(inputs, targets), callbacks=[callback], verbose=0)


WRITERS = {
    "torch": write_torch,
    "tensorboardx": write_tensorboardx,
    "tensorflow1": write_tensorflow1,
    "tensorflow2": write_tensorflow2,
    "keras": write_keras,
}


def main() -> None:
    sys.path = [path for path in sys.path if Path(path).resolve() != HERE]  # where a directory is called torch
    for name in sys.argv[1:]:
        directory = HERE / name
        shutil.rmtree(directory, ignore_errors=True)
        WRITERS[name](directory)


if __name__ == "__main__":
    main()
