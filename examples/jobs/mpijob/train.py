"""One process of an MPIJob: a logistic regression, with the gradients of all processes averaged.

Runs the same on a cluster and on one machine: mpirun finds the slots in the host file, which the operator writes. Rank
0 prints the metrics.
"""

import argparse

import numpy as np
from mpi4py import MPI

FEATURES, EXAMPLES, STEPS, STEPS_PER_REPORT = 8, 512, 40, 5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()

    heard = world.allreduce(rank + 1)
    assert heard == size * (size + 1) // 2, "the processes do not hear each other"

    true = np.random.default_rng(1).normal(size=FEATURES)
    own = np.random.default_rng(100 + rank)  # each process has its own share of the data
    x = own.normal(size=(EXAMPLES, FEATURES))
    y = (x @ true + 0.5 * own.normal(size=EXAMPLES) > 0).astype(float)
    weights, gradient = np.zeros(FEATURES), np.empty(FEATURES)
    for step in range(STEPS):
        scores = x @ weights
        own_loss = float(np.mean(np.logaddexp(0.0, scores) - y * scores))
        world.Allreduce(x.T @ (1 / (1 + np.exp(-scores)) - y) / EXAMPLES, gradient)
        weights -= options.lr * gradient / size
        loss = world.allreduce(own_loss) / size
        if rank == 0 and (step + 1) % STEPS_PER_REPORT == 0:
            print(f"step={step + 1} processes={size} loss={loss:.5f}", flush=True)


if __name__ == "__main__":
    main()
