"""One process of a JAXJob: fits a straight line, with the gradients of all processes averaged.

Runs the same on a cluster and on one machine: the operator sets the address of the coordinator (process 0), the number
of processes and the number of this one. Process 0 prints the metrics.
"""

import argparse
import os

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

EXAMPLES, STEPS, STEPS_PER_REPORT = 256, 30, 5


def average(tree: jax.Array) -> jax.Array:
    return multihost_utils.process_allgather(tree).mean(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    options = parser.parse_args()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    rank, size = int(os.environ["PROCESS_ID"]), int(os.environ["NUM_PROCESSES"])
    coordinator = f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}"
    jax.distributed.initialize(coordinator, num_processes=size, process_id=rank)

    heard = multihost_utils.process_allgather(jnp.array(rank + 1))
    assert int(heard.sum()) == size * (size + 1) // 2, "the processes do not hear each other"

    key = jax.random.key(rank)  # each process has its own share of the data
    x = jax.random.normal(key, (EXAMPLES,))
    y = 2.0 * x - 1.0 + 0.1 * jax.random.normal(jax.random.key(100 + rank), (EXAMPLES,))

    @jax.jit
    def loss_and_gradient(weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.value_and_grad(lambda w: jnp.mean((w[0] * x + w[1] - y) ** 2))(weights)

    weights = jnp.zeros(2)
    for step in range(STEPS):
        loss, gradient = loss_and_gradient(weights)
        weights = jnp.asarray(weights - options.lr * average(gradient))
        loss = float(average(loss))
        if rank == 0 and step % STEPS_PER_REPORT == 0:
            print(f"step={step} loss={loss:.6f}", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
