"""Pods that start together or not at all. Lives on the loop.

Two jobs that each hold half of the machine while their other halves wait would wait forever; so what the pods of a job
request is leased in one piece, and each of them gets its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from katib.local.pods.pod import Pod
from katib.local.pods.tokens import Lease, Request, Tokens


def start_together(pods: Sequence[Pod], tokens: Tokens) -> None:
    """Start pods as soon as the resources that they request together are free."""
    broken = [pod for pod in pods if pod.plan.cannot_start]
    requests = [pod.plan.request for pod in pods]
    total = sum(requests, Request())
    if broken or (excess := total.excess_over(tokens.capacity)):
        for pod in broken or pods[:1]:
            pod.refuse(pod.plan.cannot_start or f"the pods of the job run together and {excess}; request less")
        return
    ticket = pods[0].plan.uid

    def granted(lease: Lease) -> None:
        gpus = list(lease.gpus)
        for pod, request in zip(pods, requests, strict=True):
            own, gpus = gpus[: request.gpus], gpus[request.gpus :]
            begin = partial(pod.granted, Lease(request, tuple(own), lease.holder))
            leader = next((p for p in pods if p.plan.role == pod.plan.after), None) if pod.plan.after else None
            if leader is None:
                begin()
            else:
                leader.when_started(begin)

    def waits() -> None:
        for pod in pods:
            pod.wait_for(ticket)

    tokens.ask(ticket, total, granted, holder=pods[0].plan.holder, waits=waits)
    waits()
