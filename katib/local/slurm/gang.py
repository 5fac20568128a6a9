"""What a job of Slurm executes for a gang of pods: a step for each pod, on the node where its task was placed. Pure.

The pods know each other by names that stand for nodes until the job runs (`katib.local.pods.place.node_mark`). By a
first step Slurm says which task is on which node; then the marks in the scripts of the pods are replaced, and each of
them is executed by `srun` on its node.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING
from pathlib import Path
from typing import Final

from katib.local.pods.objects import PodPlan
from katib.local.pods.place import MARKS, node_mark
from katib.local.pods.records import Delays
from katib.local.pods.tokens import Request
from katib.local.slurm.options import MIB
from katib.local.slurm.script import WAIT_FOR, pod_script

_WHERE: Final = (
    'getent hosts "$SLURMD_NODENAME" >/dev/null 2>&1 && host=$SLURMD_NODENAME || host=$(hostname);'
    ' echo "$SLURMD_NODENAME $host"'
)
"""What a task says of its place: the name that Slurm gives the node, and one that leads there."""


def gang_environment(plans: Sequence[PodPlan]) -> dict[str, str]:
    """Return the environment of the job: that of the first pod, without what is known only when the job runs."""
    main = next((c for c in plans[0].containers if c.is_main), None)
    found = {} if main is None else main.command.env
    return {name: value for name, value in found.items() if not MARKS.search(value)}


def gang_options(requests: Sequence[Request]) -> tuple[str, ...]:
    """Return what the tasks of the job request, one for each pod: as much as the largest pod."""
    cpus = int(max(request.cpu for request in requests).to_integral_value(ROUND_CEILING))
    memory, gpus = max(request.memory for request in requests), max(request.gpus for request in requests)
    options = [f"--ntasks={len(requests)}"]
    if cpus:
        options.append(f"--cpus-per-task={cpus}")
    if memory:
        options.append(f"--mem-per-cpu={(memory / MIB / max(cpus, 1)).to_integral_value(ROUND_CEILING)}M")
    if gpus:
        options.append(f"--gpus-per-task={gpus}")
    return tuple(options)


def gang_script(plans: Sequence[PodPlan], state_files: Sequence[Path], claim: Path, delays: Delays) -> str:
    """Return the script of a gang.

    Args:
        plans: Of its pods.
        state_files: By which they are followed.
        claim: Made by the job; a second job for the same gang does nothing.
        delays: Pauses before a container is started again.
    """
    common = gang_environment(plans)
    lines = ["#!/bin/sh", "set -C", f"true 2>/dev/null >{shlex.quote(str(claim))} || exit 0", "set +C", "trap : TERM"]
    lines += [WAIT_FOR, f"layout=$(srun --label sh -c {shlex.quote(_WHERE)} 2>>{_log_of(plans[0])})"]
    marks = []
    for i, plan in enumerate(plans):
        lines.append(f'set -- $(echo "$layout" | sed -n "s/^ *{i}: //p"); node_{i}=$1; host_{i}=$2')
        mark = re.escape(node_mark(_host_name(plan))).replace("/", "\\/")
        marks.append(f'-e "s/{mark}/$host_{i}/g"')
    lines.append(f"resolved() {{ sed {' '.join(marks)}; }}")
    step = [
        "--ntasks=1",
        "--nodes=1",
        "--exact",
        "--open-mode=append",
        "--input=none",
        *gang_options([plan.request for plan in plans])[1:],
    ]
    for i, (plan, state_file) in enumerate(zip(plans, state_files, strict=True)):
        log = _log_of(plan)
        state, end = shlex.quote(str(state_file)), f"KATIB_END_OF_POD_{i}"
        script = pod_script(plan, state_file, delays, common, is_step=True)
        lines += [f"pod_{i}() {{", f"cat <<'{end}'", script.rstrip("\n"), end, "}"]
        place = f"--nodelist=$node_{i} --output={log.replace('%', '%%')} --job-name={shlex.quote(plan.name)}"
        run = f'srun {place} {shlex.join(step)} sh -c "$(pod_{i} | resolved)" 2>>{log}'
        lines.append(f'(trap "" TERM; {run}; echo "srun $?" >>{state}; echo end >>{state}) & started_{i}=$!')
    lines += [f"wait_for $started_{i}" for i in range(len(plans))]
    return "\n".join([*lines, ""])


def _log_of(plan: PodPlan) -> str:
    """Return the log of the first main container of a pod, as a word of the shell."""
    main = next(container for container in plan.containers if container.is_main)
    return shlex.quote(str(plan.directory / f"{main.command.name}.log"))


def _host_name(plan: PodPlan) -> str:
    """Return by what its peers know a pod."""
    environments: list[Mapping[str, str]] = [container.command.env for container in plan.containers]
    return next((env["HOSTNAME"] for env in environments if "HOSTNAME" in env), plan.name)
