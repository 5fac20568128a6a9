"""Fits a small network on two nodes with torch.distributed. Each node starts it with torchrun."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

POINTS, EPOCHS = 512, 60


def points() -> tuple[torch.Tensor, torch.Tensor]:
    """Return this process's share of noisy points of a sine."""
    generator = torch.Generator().manual_seed(7)
    x = torch.rand(POINTS, 1, generator=generator) * 6 - 3
    y = torch.sin(2 * x) + 0.1 * torch.randn(POINTS, 1, generator=generator)
    own = slice(dist.get_rank(), None, dist.get_world_size())
    return x[own], y[own]


def train(lr: float, hidden: int) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    x, y = points()
    for epoch in range(EPOCHS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()  # gradients are averaged over all processes here
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0 and (epoch + 1) % 10 == 0:
            print(f"epoch={epoch + 1} loss={total.item() / dist.get_world_size():.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--hidden", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(arguments.lr, arguments.hidden)
    dist.destroy_process_group()
