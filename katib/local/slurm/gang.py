"""What a job of Slurm executes for a gang of pods: a step for each pod, on the node where its task was placed. Pure.

The pods know each other by names that stand for nodes until the job runs (`katib.local.pods.place.node_mark`). By a
first step Slurm says which task is on which node; then the marks in the scripts of the pods are replaced, and each of
them is executed by `srun` on its node.

Inside an allocation a gang is one step with a task for each pod, so that Slurm starts all of them at once or none. Each
task leaves its place in a file and waits for those of the others.
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
from katib.local.slurm.script import HOST, MIB, WAIT_FOR, pod_script

_WHERE: Final = f'{HOST}; echo "$SLURMD_NODENAME $host"'
"""What a task says of its place: the name that Slurm gives the node, and one that leads there."""

HOST_FILES: Final = "mpi"
"""Below the directory of a launcher: its host files."""


def gang_environment(plans: Sequence[PodPlan]) -> dict[str, str]:
    """Return the environment of the job: that of the first pod, without what is known only when the job runs."""
    main = next((c for c in plans[0].containers if c.is_main), None)
    found = {} if main is None else main.command.env
    return {name: value for name, value in found.items() if not MARKS.search(value)}


def launcher_options(plan: PodPlan) -> tuple[str, ...]:
    """Return what the tasks of the job request that a launcher of MPI starts: each its share of what that requests."""
    request, slots = plan.request, plan.slots
    share = Request(request.cpu / slots, request.memory / slots, -(-request.gpus // slots))
    return gang_options([share] * slots)


def launcher_script(plan: PodPlan, state_file: Path, delays: Delays, *, is_step: bool = False) -> str:
    """Return the script of a launcher of MPI, which runs on the first node of its job.

    Its host files have the nodes of the job, each with the number of tasks that Slurm has placed there. Implementations
    that know Slurm start their processes by `srun`, others by `ssh`.

    Args:
        plan: Of the launcher.
        state_file: By which it is followed.
        delays: Pauses before a container is started again.
        is_step: Whether it is a step of an allocation, with a task for each slot: all but the first one keep a place.
    """
    files = shlex.quote(str(plan.directory / HOST_FILES))
    count = f"srun sh -c 'echo $SLURMD_NODENAME' 2>>{_log_of(plan)} | sort | uniq -c"
    state = shlex.quote(str(state_file))
    waits = f'trap "" TERM; until grep -qs "^end" {state}; do sleep 1; done; exit'
    first = [f'[ "$SLURM_PROCID" = 0 ] || {{ {waits}; }}', *_FIRST_TASK] if is_step else []
    count = "places" if is_step else count
    lines = pod_script(plan, state_file, delays, gang_environment([plan]), is_step=True).splitlines()
    hosts = [
        f'mkdir -p {files} && {count} | while read -r slots node; do echo "$node slots=$slots"; done >{files}/hostfile',
        f"sed 's/ slots=/:/' {files}/hostfile >{files}/hydra-hostfile",
        f"(echo '#!/bin/sh'; sed 's/.*/echo &/' {files}/hydra-hostfile) >{files}/discover_hosts.sh",
    ]
    return "\n".join([lines[0], *first, *hosts, *lines[1:], ""])


_FIRST_TASK: Final = [
    # What starts processes finds the step as if it were a job, and starts steps within it.
    "export SLURM_OVERLAP=1 SLURM_MEM_PER_NODE=0 SLURM_NODELIST=$SLURM_STEP_NODELIST",
    "export SLURM_JOB_NODELIST=$SLURM_STEP_NODELIST SLURM_TASKS_PER_NODE=$SLURM_STEP_TASKS_PER_NODE",
    "export SLURM_NNODES=$SLURM_STEP_NUM_NODES SLURM_JOB_NUM_NODES=$SLURM_STEP_NUM_NODES",
    "unset SLURM_NTASKS SLURM_NPROCS SLURM_CPUS_PER_TASK SLURM_MEM_PER_CPU SLURM_DISTRIBUTION SLURM_EXACT",
    "places() {",
    'set -- $(echo "$SLURM_TASKS_PER_NODE" | tr , "\\n" | while IFS="(x)" read -r slots _ count _; do',
    'for _ in $(seq "${count:-1}"); do echo "$slots"; done; done)',
    'for node in $(scontrol show hostnames "$SLURM_NODELIST"); do echo "$1 $node"; shift; done',
    "}",
]
"""Begins the script of the first task of the step of a launcher."""


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
    for i in range(len(plans)):
        lines.append(f'set -- $(echo "$layout" | sed -n "s/^ *{i}: //p"); node_{i}=$1; host_{i}=$2')
    lines.append(_resolved(plans))
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
        state = shlex.quote(str(state_file))
        lines += _function(i, pod_script(plan, state_file, delays, common, is_step=True))
        place = f"--nodelist=$node_{i} --output={log.replace('%', '%%')} --job-name={shlex.quote(plan.name)}"
        run = f'srun {place} {shlex.join(step)} sh -c "$(pod_{i} | resolved)" 2>>{log}'
        lines.append(f'(trap "" TERM; {run}; echo "srun $?" >>{state}; echo end >>{state}) & started_{i}=$!')
    lines += [f"wait_for $started_{i}" for i in range(len(plans))]
    return "\n".join([*lines, ""])


def step_script(plans: Sequence[PodPlan], state_files: Sequence[Path], delays: Delays) -> str:
    """Return what each task of a gang executes that is a step of an allocation.

    Args:
        plans: Of its pods, one for each task.
        state_files: By which they are followed; beside them tasks leave their places.
        delays: Pauses before a container is started again.
    """
    common = gang_environment(plans)
    places = shlex.quote(str(state_files[0].with_suffix(".place")))
    lines = ["#!/bin/sh", "trap : TERM", WAIT_FOR]
    lines += [f"({_WHERE}) >{places}.$SLURM_PROCID.new && mv {places}.$SLURM_PROCID.new {places}.$SLURM_PROCID"]
    for i in range(len(plans)):
        lines.append(f"until [ -e {places}.{i} ]; do sleep 0.1; done; read node host_{i} <{places}.{i}")
    lines.append(_resolved(plans))
    for i, (plan, state_file) in enumerate(zip(plans, state_files, strict=True)):
        lines += _function(i, pod_script(plan, state_file, delays, common, is_step=True))
        lines.append(f"state_{i}={shlex.quote(str(state_file))} log_{i}={_log_of(plan)}")
    lines.append('eval "state=\\$state_$SLURM_PROCID log=\\$log_$SLURM_PROCID"')
    # A session of its own: a signal to its process group reaches the pod and nothing else.
    lines.append('setsid sh -c "$(pod_$SLURM_PROCID | resolved)" >>"$log" 2>&1 & wait_for $!')
    return "\n".join([*lines, 'echo "srun $code" >>"$state"; echo end >>"$state"', ""])


def _resolved(plans: Sequence[PodPlan]) -> str:
    """Return a function that replaces what stands for the node of each pod by what its variable has."""
    options = []
    for i, plan in enumerate(plans):
        environments: list[Mapping[str, str]] = [container.command.env for container in plan.containers]
        host = next((env["HOSTNAME"] for env in environments if "HOSTNAME" in env), plan.name)  # as its peers know it
        mark = re.escape(node_mark(host)).replace("/", "\\/")
        options.append(f'-e "s/{mark}/$host_{i}/g"')
    return f"resolved() {{ sed {' '.join(options)}; }}"


def _function(number: int, script: str) -> list[str]:
    """Return a function that writes the script of a pod."""
    end = f"KATIB_END_OF_POD_{number}"
    return [f"pod_{number}() {{", f"cat <<'{end}'", script.rstrip("\n"), end, "}"]


def _log_of(plan: PodPlan) -> str:
    """Return the log of the first main container of a pod, as a word of the shell."""
    main = next(container for container in plan.containers if container.is_main)
    return shlex.quote(str(plan.directory / f"{main.command.name}.log"))
