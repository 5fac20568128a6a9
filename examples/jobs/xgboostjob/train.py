"""One replica of an XGBoostJob: boosted trees over the rows of all replicas.

Runs the same on a cluster and on one machine: the operator sets the address of the master, which runs the tracker, the
rank and the number of replicas. The master prints the metrics.
"""

import argparse
import os

import numpy as np
import xgboost as xgb
from xgboost import collective
from xgboost.tracker import RabitTracker

ROWS, FEATURES, ROUNDS = 2000, 10, 20


def rows(seed: int) -> xgb.DMatrix:
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, FEATURES))
    y = (x[:, 0] * x[:, 1] + np.sin(x[:, 2]) + 0.2 * random.normal(size=ROWS) > 0).astype(float)
    return xgb.DMatrix(x, y, nthread=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--eta", type=float, required=True)
    parser.add_argument("--depth", type=int, required=True)
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    tracker = RabitTracker(n_workers=size, host_ip=host, port=port) if rank == 0 else None
    if tracker is not None:
        tracker.start()
    with collective.CommunicatorContext(dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_retry=10):
        heard = collective.allreduce(np.array([rank + 1]), collective.Op.SUM)
        assert heard[0] == size * (size + 1) // 2, "the replicas do not hear each other"
        training, test = rows(seed=rank), rows(seed=1000 + rank)
        result: dict[str, dict[str, list[float]]] = {}
        xgb.train(
            {
                "objective": "binary:logistic",
                "eval_metric": "error",
                "tree_method": "hist",
                "eta": options.eta,
                "max_depth": options.depth,
                "nthread": 1,
            },
            training,
            ROUNDS,
            evals=[(test, "test")],
            evals_result=result,
            verbose_eval=False,
        )
        if rank == 0:
            for number, error in enumerate(result["test"]["error"]):
                print(f"round={number} error={error:.4f}", flush=True)
    if tracker is not None:
        tracker.wait_for(timeout=30)


if __name__ == "__main__":
    main()
