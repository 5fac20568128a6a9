"""One replica of a PyTorchJob: trains a logistic regression on its share of the data, gradients averaged over all.

Runs the same on a cluster and on one machine: `init_process_group` finds the others by MASTER_ADDR, MASTER_PORT, RANK
and WORLD_SIZE, which the operator sets. The master (rank 0) prints the metrics.
"""

import argparse

import torch
import torch.distributed as dist

CLASSES, FEATURES, EXAMPLES, EPOCHS = 3, 8, 600, 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--momentum", type=float, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    check = torch.tensor(float(rank + 1))
    dist.all_reduce(check)
    assert check.item() == size * (size + 1) / 2, "the replicas do not hear each other"

    torch.manual_seed(1)  # the same data and the same start everywhere
    true = torch.randn(FEATURES, CLASSES)
    x = torch.randn(EXAMPLES, FEATURES)
    y = (x @ true + 0.5 * torch.randn(EXAMPLES, CLASSES)).argmax(1)
    own = slice(rank, None, size)
    model = torch.nn.Linear(FEATURES, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum)
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[own]), y[own]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()
        if rank == 0:
            loss = torch.nn.functional.cross_entropy(model(x), y).item()
            accuracy = (model(x).argmax(1) == y).float().mean().item()
            print(f"epoch={epoch} loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
