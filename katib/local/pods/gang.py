"""Pods that start together or not at all. Lives on the loop.

Two jobs that each hold half of the machine while their other halves wait would wait forever; so what the pods of a job
request is leased in one piece, and each of them gets its part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from katib.local.pods.pod import Pod
from katib.local.pods.tokens import Lease, Request, Tokens
from katib.local.processes.connection import KeptProcess


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
            _begin(pod, pods, partial(pod.granted, Lease(request, tuple(own), lease.holder)))

    def waits() -> None:
        for pod in pods:
            pod.wait_for(ticket)

    tokens.ask(ticket, total, granted, holder=pods[0].plan.holder, waits=waits)
    waits()


def resume_pods(
    pods: Sequence[Pod],
    kept: Mapping[str, Mapping[str, Sequence[KeptProcess]]],
    stopped: Collection[str],
    tokens: Tokens,
) -> None:
    """Go on with the pods of a job that outlived their engine; start those that had not begun.

    Args:
        pods: All that it had.
        kept: By the uid of a pod and the name of a container, its processes, the oldest first.
        stopped: Names of pods that the job has ended.
        tokens: Where they have their leases.
    """
    for pod in pods:
        plan, processes = pod.plan, kept.get(pod.plan.uid, {})
        every = [process for found in processes.values() for process in found]
        cards = every[0].name[2:] if every else ()
        if every and all(process.status is not None for process in every):  # it has given back what it had
            pod.granted(Lease(Request(), cards), processes)
        elif every:
            pod.granted(tokens.keep(plan.request, cards, plan.holder), processes)
        elif plan.role and plan.name not in stopped and not plan.cannot_start:  # its gang has what it needs
            free = tokens.free_gpus()[: plan.request.gpus]
            _begin(pod, pods, partial(pod.granted, tokens.keep(plan.request, free, plan.holder)))
        elif plan.name not in stopped:
            pod.start()
        if plan.name in stopped:
            pod.stop()


def _begin(pod: Pod, pods: Sequence[Pod], begin: Callable[[], None]) -> None:
    """Begin with a pod, after the one that it has to follow."""
    leader = next((p for p in pods if p.plan.role == pod.plan.after), None) if pod.plan.after else None
    if leader is None:
        begin()
    else:
        leader.when_started(begin)
