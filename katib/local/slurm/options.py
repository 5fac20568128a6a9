"""Options of `sbatch` for a pod: what its template requests, and what users add. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Final

from katib.api.names import SLURM_OPTIONS_ANNOTATION
from katib.errors import invalid
from katib.local.pods.objects import PodPlan
from katib.local.pods.tokens import Request
from katib.tuning.batch_scripts import SET_BY_US

_TEMPLATE: Final = "spec.trialTemplate.trialSpec.spec.template.metadata"
MIB: Final = Decimal(2**20)


def checked_options(texts: Iterable[str], place: str, *, may_have_tasks: bool = False) -> tuple[str, ...]:
    """Return options that users wrote, such as `partition=gpu` or `--exclusive`, as `sbatch` takes them.

    Args:
        texts: One option each.
        place: Where they stand, for errors.
        may_have_tasks: Whether `ntasks` is one of them.

    Raises:
        InvalidError: One is none, or is given to every job by us.
    """
    found = []
    for text in texts:
        name, equals, value = text.removeprefix("--").partition("=")
        if not name.replace("-", "").isalnum() or (text.startswith("-") and not text.startswith("--")):
            remedy = "write options of sbatch by their long names, such as partition=gpu"
            raise invalid(place, f'"{text}" is not an option of sbatch', remedy, "slurm-option")
        if name in SET_BY_US and not (may_have_tasks and name == "ntasks"):
            raise invalid(place, f"--{name} is set for every trial already", "remove it", "slurm-option-ours")
        found.append(f"--{name}{equals}{value}")
    return tuple(found)


def annotated_options(
    annotations: Mapping[str, object], place: str, *, may_have_tasks: bool = False
) -> tuple[str, ...]:
    """Return the options in the annotations of a pod template, among them tasks that a program starts by `srun`.

    Raises:
        InvalidError: As `checked_options`.
    """
    text = str(annotations.get(SLURM_OPTIONS_ANNOTATION) or "")
    where = f"{place}.annotations[{SLURM_OPTIONS_ANNOTATION}]"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise invalid(where, f"{text!r}: {error}".lower(), "close the quotation", "slurm-option") from error
    return checked_options(words, where, may_have_tasks=may_have_tasks)


def requested_options(request: Request) -> tuple[str, ...]:
    """Return the options for what a pod requests: whole cores, MiB and GPUs of any kind, each rounded up."""
    options = ["--ntasks=1"]
    if request.cpu:
        options.append(f"--cpus-per-task={request.cpu.to_integral_value(ROUND_CEILING)}")
    if request.memory:
        options.append(f"--mem={(request.memory / MIB).to_integral_value(ROUND_CEILING)}M")
    if request.gpus:
        options.append(f"--gres=gpu:{request.gpus}")
    return tuple(options)


def step_options(
    plan: PodPlan, comment: str, requested: Sequence[str], general: Sequence[str], log: Path
) -> tuple[str, ...]:
    """Return all options of `srun` for a pod or a gang that is a step; arguments and errors are as of `job_options`."""
    return (
        f"--job-name={comment}",
        f"--output={str(log).replace('%', '%%')}",
        "--open-mode=append",
        "--chdir=/",
        *(() if plan.role else ("--nodes=1",)),
        "--exact",
        *requested,
        *general,
        *annotated_options(plan.annotations, _TEMPLATE),
    )


def job_options(
    plan: PodPlan, comment: str, requested: Sequence[str], general: Sequence[str], log: Path
) -> tuple[str, ...]:
    """Return all options of the job of a pod or of a gang; of those that are given twice, the last one counts.

    Args:
        plan: Of the pod, or of the first one.
        comment: By which its job is found again.
        requested: What its pods request.
        general: Of all jobs.
        log: Takes the output of its script.

    Raises:
        InvalidError: Its annotation is wrong.
    """
    return (
        f"--job-name={plan.name}",
        f"--comment={comment}",
        f"--output={str(log).replace('%', '%%')}",
        "--open-mode=append",
        "--chdir=/",
        "--export=ALL",
        "--no-requeue",
        *requested,
        *general,
        *annotated_options(plan.annotations, _TEMPLATE, may_have_tasks=not plan.role),
    )
