"""One replica of an XGBoostJob that trains with LightGBM, each replica on rows of its own.

LightGBM wants the address of every replica. On a cluster the operator tells the hosts of the workers and one port for
all of them; on one machine the replicas share a host, and KATIB_PEERS lists host and port of each by rank.
"""

import argparse
import os

import lightgbm as lgb
import numpy as np

ROWS, FEATURES, ROUNDS = 2000, 10, 20


def machines() -> list[str]:
    if peers := os.environ.get("KATIB_PEERS"):
        return peers.split(",")
    workers = [f"{host}:{os.environ['WORKER_PORT']}" for host in os.environ["WORKER_ADDRS"].split(",")]
    return [f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", *workers]


def rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, FEATURES))
    return x, (x[:, 0] * x[:, 1] + np.sin(x[:, 2]) + 0.2 * random.normal(size=ROWS) > 0).astype(float)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--eta", type=float, required=True)
    parser.add_argument("--depth", type=int, required=True)
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    everybody = machines()
    assert len(everybody) == size
    booster = lgb.train(
        {
            "objective": "binary",
            "tree_learner": "data",
            "num_machines": size,
            "machines": ",".join(everybody),
            "local_listen_port": int(everybody[rank].rpartition(":")[2]),
            "time_out": 2,
            "learning_rate": options.eta,
            "max_depth": options.depth,
            "num_threads": 1,
            "verbose": -1,
        },
        lgb.Dataset(*rows(seed=rank)),
        ROUNDS,
    )
    if rank == 0:
        x, y = rows(seed=1000)
        error = float(np.mean(booster.predict(x).round() != y))
        print(f"error={error:.4f} trees={booster.num_trees()}", flush=True)


if __name__ == "__main__":
    main()
