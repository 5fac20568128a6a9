"""The script and the options of a job of Slurm for a pod or a gang, and the file by which a pod is followed. Pure.

It is a script of `sh`, which is all that a node needs, and the kubelet of the pod: init containers one by one, sidecars
beside them, then the main containers together; a container that is to be started again is, after the kubelet's pause.

The file by which a pod is followed begins to exist when the pod starts and has a line for each process that has ended,
`<number of the container> <exit code>`, and `end` when nothing more comes. It begins with `job`, the number of the job,
the time in seconds, the node and the cards that Slurm gave it; `term` says that the script was asked to end. For a pod
of a gang, and for a step of an allocation, it has `step` with the number of its step; `pid` with its first process,
which leads a process group in a step that it shares, and `srun` with the code by which that ended. The file is made
with `O_EXCL`: of two jobs for one pod, which a submission whose answer was lost can lead to, the second does nothing.
Beside it are the standard output and the standard error of each main container, of which the engine makes the log.

The job of a gang has a step for each pod, on the node of its task. The pods know each other by names that
stand for nodes until the job runs (`katib.places.machine.pods.place.node_mark`). By a first step Slurm says which task
is on which node; then the marks in the scripts of the pods are replaced, and each of them is executed by `srun` on its
node. Inside an allocation a gang is one step with a task for each pod, so that Slurm starts all of them at once or
none. Each task leaves its place in a file and waits for those of the others.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Final, NamedTuple

from katib.errors import invalid
from katib.model.names import SLURM_OPTIONS_ANNOTATION
from katib.places.machine.pods.place import MARKS, node_mark
from katib.places.machine.pods.plans import ContainerPlan, ContainerRole, PodPlan
from katib.places.machine.pods.records import Delays
from katib.places.machine.pods.requests import Request
from katib.places.machine.slurm.commands import ONE_CLUSTER
from katib.service.drafting import SET_BY_US

WITHIN: Final = "within:"
"""Begins the name of a step that a container runs as, after which come the step of its pod, as `12.3`, and a number."""

ASKING: Final = "URG"
"""The signal by which the script of such a pod is asked to end: at SIGTERM its `srun` would kill the container."""

HOST: Final = 'getent hosts "$SLURMD_NODENAME" >/dev/null 2>&1 && host=$SLURMD_NODENAME || host=$(hostname)'
"""Finds a name that leads to the node of a script."""

HOST_FILE: Final = "host"
"""In the directory of a pod that offers metrics at a port: that name."""

METRICS_PORT_VARIABLE: Final = "KATIB_METRICS_PORT"

WAIT_FOR: Final = """\
wait_for() {
  wait $1; code=$?
  while kill -0 $1 2>/dev/null; do wait $1; code=$?; done
}
"""
"""A signal ends `wait` before the process has ended, which itself ends by that signal or not."""


@dataclass(slots=True)
class ScriptProgress:
    """The content of the file of a pod.

    Attributes:
        exits: By the number of a container, the exit codes of its processes, the first one first.
        is_over: Whether nothing more comes.
        was_asked: Whether it was asked to end, by us or by Slurm.
        was_full: Whether the disk of the file had no room when something ended.
        job: Its job; empty if unknown.
        began: When, by the clock of its node, in seconds since 1970; 0 if unknown.
        cards: Which of the node's cards it may use.
        step: Of the pod in the job of its gang, or in an allocation; empty without one.
        in_allocation: Whether that job is an allocation in which katib ran.
        pid: Its first process on that node; 0 if unknown.
        step_code: The exit code of that step; None while it runs.
    """

    exits: dict[int, list[int]] = field(default_factory=dict)
    is_over: bool = False
    was_asked: bool = False
    was_full: bool = False
    job: str = ""
    began: int = 0
    node: str = ""
    cards: tuple[str, ...] = ()
    step: str = ""
    in_allocation: bool = False
    pid: int = 0
    step_code: int | None = None


def parse_progress(text: str) -> ScriptProgress:
    """Return the content of the file of a pod; a line that is not complete is ignored."""
    found = ScriptProgress()
    for line in text.split("\n")[:-1]:
        number, _, code = line.partition(" ")
        if line == "end":
            found.is_over = True
        elif line == "term":
            found.was_asked = True
        elif line == "full":
            found.was_full = True
        elif number == "job":
            found.job, began, found.node, cards = (*code.split(" "), "", "", "", "")[:4]
            found.began = int(began) if began.isdecimal() else 0
            found.cards = tuple(filter(None, cards.split(",")))
        elif number == "step":
            found.step, _, place = code.partition(" ")
            found.in_allocation = bool(place)
        elif number == "pid" and code.isdigit():
            found.pid = int(code)
        elif number == "srun" and code.isdigit():
            found.step_code = int(code)
        elif number.isdigit() and code.isdigit():
            found.exits.setdefault(int(number), []).append(int(code))
    return found


def stream_files(state_file: Path, number: int) -> tuple[Path, Path]:
    """Return the files for standard output and standard error of a main container, by its number in the pod."""
    return state_file.with_suffix(f".{number}.out"), state_file.with_suffix(f".{number}.err")


def first_streams(plan: PodPlan, state_file: Path) -> tuple[Path, Path]:
    """Return those of the first main container of a pod. Messages of Slurm are in the second one, too."""
    return stream_files(state_file, next(i for i, c in enumerate(plan.containers) if c.role is ContainerRole.MAIN))


def environment_of(plan: PodPlan) -> Mapping[str, str]:
    """Return the environment of the job: that of its first main container; the others change their own variables."""
    return next((c.command.env for c in plan.containers if c.role is ContainerRole.MAIN), {})


def pod_script(
    plan: PodPlan,
    state_file: Path,
    delays: Delays,
    common: Mapping[str, str],
    *,
    is_step: bool = False,
    in_allocation: bool = False,
) -> str:
    """Return the script of a pod.

    Args:
        state_file: By which it is followed; its directory is there.
        delays: Pauses before a container is started again.
        common: The environment that the script finds.
        is_step: Whether `srun` executes it. Then output comes late through it, and each container writes its own files;
            the output of a job is that of the first main container.
        in_allocation: Whether that step is one of an allocation, as those of pods without a gang are.
    """
    followed = shlex.quote(str(state_file))
    numbered = list(enumerate(plan.containers))
    mains = [(i, c) for i, c in numbered if c.role is ContainerRole.MAIN]
    sidecars = [i for i, c in numbered if c.role is ContainerRole.SIDECAR]
    lines = ["#!/bin/sh", *_begun(state_file)]
    lines.append(f'say() {{ until echo "$@" 2>/dev/null >>{followed}; do {_NO_ROOM}; done; }}')
    lines.append(f"fits() {{ printf %{_ROOM_BYTES}s 2>/dev/null >{followed}.room || full=1; rm -f {followed}.room; }}")
    signals = f"TERM {ASKING}" if is_step else "TERM"
    lines.append(f"asked() {{ stopping=1; say term; }}; trap asked {signals}")
    began = "0" if is_step and not plan.role else "$(date +%s)"  # of a step of its own it is not needed
    said = f"$SLURM_JOB_ID {began} $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    lines.append(f'[ -z "$SLURM_JOB_ID" ] || say "job {said}"')
    place = " allocation" if in_allocation or (is_step and not plan.role) else ""
    lines.append(f'[ -z "$SLURM_STEP_ID" ] || say "step $SLURM_STEP_ID{place}"')
    if plan.role:
        lines.append("say pid $$")
    if any(METRICS_PORT_VARIABLE in container.command.env for _, container in mains):
        lines.append(f"{HOST} && echo $host >{shlex.quote(str(plan.directory / HOST_FILE))}")
    if len(mains) > 1 or sidecars:
        lines.append(WAIT_FOR)
    of_job = None if is_step else mains[0][1]
    for i, container in numbered:
        out, err = map(shlex.quote, map(str, stream_files(state_file, i)))
        log = shlex.quote(str(plan.directory / f"{container.command.name}.log"))
        to_files = f" >>{out} 2>>{err}" if container.role is ContainerRole.MAIN else f" >>{log} 2>&1"
        lines += _functions(container, i, "" if container is of_job else to_files, common, delays)
    lines.append("pod() {")
    for i, container in numbered:
        if container.role is ContainerRole.SIDECAR:
            lines += [f"container_{i} & sidecar_{i}=$!"]
        elif container.role is ContainerRole.INIT:
            lines += [f"container_{i} || return 1"]
    if len(mains) == 1 and not sidecars:
        lines.append(f"container_{mains[0][0]}")
    else:
        lines += [f"container_{i} & main_{i}=$!" for i, _ in mains]
        lines += [f"wait_for $main_{i}" for i, _ in mains]
    lines += ["}", "pod"]
    if sidecars:
        lines.append(f"kill {' '.join(f'$sidecar_{i}' for i in sidecars)} 2>/dev/null; wait")
    return "\n".join([*lines, "say end", ""])


_NO_ROOM: Final = "full=1; sleep 5 & wait $!"
"""A full disk is waited for: how a program ended would be lost."""

_ROOM_BYTES: Final = 1 << 16
"""A disk with less room is full if a program has failed."""


def _begun(file: Path) -> list[str]:
    """Return lines that make a file, or end the script if it exists, or if its directory does not."""
    made, directory = shlex.quote(str(file)), shlex.quote(str(file.parent))
    ends = f"{{ [ -e {made} ] || [ ! -d {directory} ]; }} && exit 0"
    return ["set -C", f"until true 2>/dev/null >{made}; do {ends}; {_NO_ROOM}; done", "set +C"]


def _functions(container: ContainerPlan, i: int, to_files: str, common: Mapping[str, str], delays: Delays) -> list[str]:
    """Return the functions of a container: one executes it, the other repeats that as long as it is to be."""
    command = container.command
    changes = [
        *(f"export {name}={shlex.quote(value)}" for name, value in command.env.items() if common.get(name) != value),
        *(f"unset {name}" for name in common if name not in command.env),
    ]
    made = [container.directory, *container.volumes]
    return [
        f"process_{i}() {{",
        *(f"[ -d {quoted} ] || mkdir -p {quoted}" for quoted in map(shlex.quote, map(str, made))),
        *changes,
        f"cd {shlex.quote(str(container.directory))} && exec {shlex.join(command.argv)}",
        "}",
        f"container_{i}() {{",
        *_repeated(container, i, f"(process_{i}){to_files}", delays),
        "}",
    ]


def _repeated(container: ContainerPlan, i: int, run: str, delays: Delays) -> Sequence[str]:
    if container.restart_always:  # a sidecar, which ends with a signal to this shell
        ending = "trap 'kill $child 2>/dev/null; wait $child; exit' TERM"
        return [ending, f"while :; do {run} & child=$!; wait $child; sleep 1; done"]
    end = f"{run}; code=$?; [ $code = 0 ] || fits; say {i} $code; [ -z $full ] || say full"
    if not container.restart_on_failure:
        return [end, "return $code"]
    first = delays.restart.pause_seconds(1)
    return [
        "pause=0",
        f'while :; do {end}; [ $code = 0 ] && return 0; [ -z "$stopping" ] || return $code; sleep $pause & wait $!',
        f"[ $pause = 0 ] && pause={first:g} || pause=$((pause * 2)); done",
    ]


_TEMPLATE: Final = "spec.trialTemplate.trialSpec.spec.template.metadata"
MIB: Final = Decimal(2**20)


OF_A_SCRIPT: Final = frozenset({"ntasks", "export"})
"""Options that the annotation of a pod may have that is a job by itself: its script starts the tasks."""

_OF_TASKS: Final = ("--nodes", "--ntasks")
"""Begin the options that say how many tasks a job has."""


def checked_options(texts: Iterable[str], place: str, allowed: Collection[str] = ()) -> tuple[str, ...]:
    """Return options that users wrote, such as `partition=gpu` or `--exclusive`, as `sbatch` takes them.

    Args:
        texts: One option each.
        place: Their path, for errors.
        allowed: Options that may be given although every job has them already.

    Raises:
        InvalidError: One is none, or is given to every job by us.
    """
    found = []
    for text in texts:
        name, equals, value = text.removeprefix("--").partition("=")
        if not name.replace("-", "").isalnum() or (text.startswith("-") and not text.startswith("--")):
            remedy = "write options of sbatch by their long names, such as partition=gpu"
            raise invalid(place, f'"{text}" is not an option of sbatch', remedy, "slurm-option")
        if name == "clusters":
            raise invalid(place, *ONE_CLUSTER, "slurm-clusters")
        if name in SET_BY_US and name not in allowed:
            raise invalid(place, f"--{name} is set for every trial already", "remove it", "slurm-option-ours")
        found.append(f"--{name}{equals}{value}")
    return tuple(found)


def annotated_options(annotations: Mapping[str, object], place: str, allowed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the options in the annotations of a pod template.

    Raises:
        InvalidError: As `checked_options`.
    """
    text = str(annotations.get(SLURM_OPTIONS_ANNOTATION) or "")
    where = f"{place}.annotations[{SLURM_OPTIONS_ANNOTATION}]"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise invalid(where, f"{text!r}: {error}".lower(), "close the quotation", "slurm-option") from error
    return checked_options(words, where, allowed)


def inherits_environment(annotations: Mapping[str, object]) -> bool:
    """Return whether a pod starts from our environment: unless its annotation has an option `export` without ALL.

    Raises:
        InvalidError: As `checked_options`.
    """
    options = annotated_options(annotations, _TEMPLATE, OF_A_SCRIPT)
    exported = [option.partition("=")[2] for option in options if option.startswith("--export=")]
    return not exported or "ALL" in exported[-1].upper().split(",")


def have_tasks(options: Iterable[str]) -> bool:
    """Return whether options that users wrote say how many tasks a job has."""
    return any(option.startswith(_OF_TASKS) for option in options)


def requested_options(request: Request, *, is_one_task: bool = False) -> tuple[str, ...]:
    """Return the options for the request of a pod: whole cores, MiB and GPUs of any kind, each rounded up.

    Args:
        is_one_task: Whether it is one task, as a step of an allocation is unless other options say how many it has.
    """
    options = ["--nodes=1", "--ntasks=1"] if is_one_task else []
    if request.cpu:
        options.append(f"--cpus-per-task={request.cpu.to_integral_value(ROUND_CEILING)}")
    if request.memory:
        options.append(f"--mem={(request.memory / MIB).to_integral_value(ROUND_CEILING)}M")
    if request.gpus:
        options.append(f"--gres=gpu:{request.gpus}")
    return tuple(options)


class GeneralOptions(NamedTuple):
    """Options of all jobs.

    Attributes:
        words: As `checked_options` returns them.
        win: Whether they count before those of an annotation.
    """

    words: tuple[str, ...] = ()
    win: bool = False

    def beside(self, own: Sequence[str]) -> tuple[str, ...]:
        """Return them with those of a pod; of options that are given twice, the last one counts."""
        return (*own, *self.words) if self.win else (*self.words, *own)


def written_options(plan: PodPlan, general: GeneralOptions) -> tuple[str, ...]:
    """Return the user's options for the job of a pod or of a gang. Raises InvalidError: its annotation is wrong."""
    return general.beside(annotated_options(plan.annotations, _TEMPLATE, () if plan.role else OF_A_SCRIPT))


def job_options(
    plan: PodPlan,
    comment: str,
    requested: Sequence[str],
    general: GeneralOptions,
    files: Sequence[Path],
    *,
    is_step: bool = False,
) -> tuple[str, ...]:
    """Return all options of the job of a pod or of a gang; of those that are given twice, the last one counts.

    Args:
        plan: Of the pod, or of the first one.
        comment: By which its job is found again.
        files: Take the standard output and the standard error of its script, or one takes both.
        is_step: Whether the options are those of `srun`, for a step of an allocation.

    Raises:
        InvalidError: Its annotation is wrong.
    """
    own: tuple[str, ...] = (f"--job-name={plan.name}", f"--comment={comment}", "--export=ALL", "--no-requeue")
    if is_step:
        own = (f"--job-name={comment}", "--exact")
    return (
        *own,
        *(f"--{name}={str(file).replace('%', '%%')}" for name, file in zip(("output", "error"), files, strict=False)),
        "--open-mode=append",
        "--chdir=/",
        *requested,
        *written_options(plan, general),
    )


# --- gangs ------------------------------------------------------------------------------------------------------------


_WHERE: Final = f'{HOST}; echo "$SLURMD_NODENAME $host"'
"""The place of a task: the name that Slurm gives the node, and one that leads there."""

HOST_FILES: Final = "mpi"
"""Below the directory of a launcher: its host files."""


def gang_environment(plans: Sequence[PodPlan]) -> dict[str, str]:
    """Return the environment of the job: that of the first pod, without variables that need the running job."""
    main = next((c for c in plans[0].containers if c.role is ContainerRole.MAIN), None)
    found = {} if main is None else main.command.env
    return {name: value for name, value in found.items() if not MARKS.search(value)}


def launcher_options(plan: PodPlan) -> tuple[str, ...]:
    """Return the request of each task of a launcher of MPI: its share of the launcher's request."""
    request, slots = plan.request, plan.slots
    share = Request(request.cpu / slots, request.memory / slots, -(-request.gpus // slots))
    return gang_options([share] * slots)


def launcher_script(plan: PodPlan, state_file: Path, delays: Delays, *, is_step: bool = False) -> str:
    """Return the script of a launcher of MPI, which runs on the first node of its job.

    Its host files have the nodes of the job, each with the number of tasks that Slurm has placed there. Implementations
    that know Slurm start their processes by `srun`, others by `ssh`.

    Args:
        delays: Pauses before a container is started again.
        is_step: Whether it is a step of an allocation, with a task for each slot: all but the first one keep a place.
    """
    files = shlex.quote(str(plan.directory / HOST_FILES))
    count = f"srun sh -c 'echo $SLURMD_NODENAME' 2>>{_errors_of(plan, state_file)} | sort | uniq -c"
    count = "places" if is_step else count
    script = pod_script(plan, state_file, delays, gang_environment([plan]), is_step=True, in_allocation=is_step)
    hosts = [
        f'mkdir -p {files} && {count} | while read -r slots node; do echo "$node slots=$slots"; done >{files}/hostfile',
        f"sed 's/ slots=/:/' {files}/hostfile >{files}/hydra-hostfile",
        f"(echo '#!/bin/sh'; sed 's/.*/echo &/' {files}/hydra-hostfile) >{files}/discover_hosts.sh",
    ]
    script = _inserted(hosts, script)
    return first_task_script(script, state_file) if is_step else script


def first_task_script(script: str, state_file: Path) -> str:
    """Return the script of each task of a step of an allocation: all but the first one keep a place for its `srun`.

    Args:
        script: Of the first task.
    """
    waits = f'trap "" TERM; until grep -qs "^end" {shlex.quote(str(state_file))}; do sleep 1; done; exit'
    return _inserted([f'[ "$SLURM_PROCID" = 0 ] || {{ {waits}; }}', *_FIRST_TASK], script)


def _inserted(lines: Sequence[str], script: str) -> str:
    """Return a script with further lines before its first command."""
    first, _, rest = script.partition("\n")
    return "\n".join([first, *lines, rest])


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
"""Begins the script of the first of several tasks of a step."""


def gang_options(requests: Sequence[Request]) -> tuple[str, ...]:
    """Return the request of the tasks of the job, one for each pod: that of the largest pod."""
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
        claim: Made by the job; a second job for the same gang does nothing.
        delays: Pauses before a container is started again.
    """
    common = gang_environment(plans)
    lines = ["#!/bin/sh", *_begun(claim), "trap : TERM"]
    lines += [WAIT_FOR, f"layout=$(srun --label sh -c {shlex.quote(_WHERE)} 2>>{_errors_of(plans[0], state_files[0])})"]
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
        errors = _errors_of(plan, state_file)
        state = shlex.quote(str(state_file))
        lines += _function(i, pod_script(plan, state_file, delays, common, is_step=True))
        place = f"--nodelist=$node_{i} --output={errors.replace('%', '%%')} --job-name={shlex.quote(plan.name)}"
        run = f'srun {place} {shlex.join(step)} sh -c "$(pod_{i} | resolved)" 2>>{errors}'
        lines.append(f'(trap "" TERM; {run}; echo "srun $?" >>{state}; echo end >>{state}) & started_{i}=$!')
    lines += [f"wait_for $started_{i}" for i in range(len(plans))]
    return "\n".join([*lines, ""])


def step_script(plans: Sequence[PodPlan], state_files: Sequence[Path], delays: Delays) -> str:
    """Return the script of each task of a gang that is a step of an allocation.

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
        lines += _function(i, pod_script(plan, state_file, delays, common, is_step=True, in_allocation=True))
        lines.append(f"state_{i}={shlex.quote(str(state_file))} errors_{i}={_errors_of(plan, state_file)}")
    lines.append('eval "state=\\$state_$SLURM_PROCID errors=\\$errors_$SLURM_PROCID"')
    # A session of its own: a signal to its process group reaches the pod and nothing else.
    lines.append('setsid sh -c "$(pod_$SLURM_PROCID | resolved)" >>"$errors" 2>&1 & wait_for $!')
    return "\n".join([*lines, 'echo "srun $code" >>"$state"; echo end >>"$state"', ""])


def _resolved(plans: Sequence[PodPlan]) -> str:
    """Return a function that replaces the mark of the node of each pod by the value of its variable."""
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


def _errors_of(plan: PodPlan, state_file: Path) -> str:
    """Return the file for the standard error of the first main container of a pod, as a word of the shell."""
    return shlex.quote(str(first_streams(plan, state_file)[1]))
