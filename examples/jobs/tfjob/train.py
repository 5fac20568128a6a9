"""One worker of a TFJob: a logistic regression under MultiWorkerMirroredStrategy.

Runs the same on a cluster and on one machine: TensorFlow finds the other workers in TF_CONFIG, which the operator sets.
The first worker prints the metrics.
"""

import argparse
import json
import os

import tensorflow as tf

FEATURES, EXAMPLES, EPOCHS = 8, 512, 15


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    config = json.loads(os.environ["TF_CONFIG"])
    index, size = config["task"]["index"], len(config["cluster"]["worker"])

    def total(value: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)

    heard = float(total(tf.constant(index + 1.0)))
    assert heard == size * (size + 1) / 2, "the workers do not hear each other"

    random = tf.random.Generator.from_seed(1)
    true = random.normal((FEATURES, 1))
    own = tf.random.Generator.from_seed(100 + index)  # each worker has its own share of the data
    x = own.normal((EXAMPLES, FEATURES))
    y = tf.cast(x @ true + 0.5 * own.normal((EXAMPLES, 1)) > 0, tf.float32)
    weights = tf.zeros((FEATURES, 1))
    for epoch in range(EPOCHS):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(y, x @ weights))
        weights -= options.lr * total(tape.gradient(loss, weights)) / size
        loss = float(total(loss)) / size
        if index == 0:
            print(f"epoch={epoch} loss={loss:.5f}", flush=True)


if __name__ == "__main__":
    main()
