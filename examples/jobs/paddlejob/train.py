"""One process of a PaddleJob: fits a straight line, with the gradients of all processes added up.

Runs the same on a cluster and on one machine: started by `paddle.distributed.launch`, which finds the other replicas by
what the operator sets. The process of rank 0 prints the metrics.
"""

import argparse

import paddle
import paddle.distributed as dist

EXAMPLES, STEPS, STEPS_PER_REPORT = 256, 30, 5


def total(value: paddle.Tensor) -> paddle.Tensor:
    summed = value.clone().detach()
    dist.all_reduce(summed)
    return summed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    options = parser.parse_args()
    paddle.set_device("cpu")
    dist.init_parallel_env()
    rank, size = dist.get_rank(), dist.get_world_size()

    heard = total(paddle.to_tensor([float(rank + 1)])).item()
    assert heard == size * (size + 1) / 2, "the processes do not hear each other"

    paddle.seed(rank)  # each process has its own share of the data
    x = paddle.randn([EXAMPLES, 1])
    y = 2.0 * x - 1.0 + 0.1 * paddle.randn([EXAMPLES, 1])
    weights = paddle.zeros([2])
    for step in range(STEPS):
        error = weights[0] * x + weights[1] - y
        gradient = paddle.stack([(2 * error * x).mean(), (2 * error).mean()])
        weights = weights - options.lr * total(gradient) / size
        loss = total((error**2).mean().reshape([1])).item() / size
        if rank == 0 and step % STEPS_PER_REPORT == 0:
            print(f"step={step} loss={loss:.6f}", flush=True)


if __name__ == "__main__":
    main()
