"""What Slurm says of an experiment before any of its trials runs, and what it has for the images of trials.

That is pyxis, a plugin of Slurm, or Apptainer (or Singularity). Both run as the user's account, keep the environment
of the job, and have caches of their own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final

from katib.engine.runtime.objects import Kind
from katib.errors import FieldError, InvalidError, TerminalError, UnavailableError, invalid
from katib.model.templates.placeholders import has_placeholder
from katib.model.types import CollectorKind, ExperimentSpec
from katib.places.machine.findings import mapping
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.images import ImageRun, NodeImages
from katib.places.machine.pods.tokens import Request
from katib.places.machine.slurm.commands import Answer, Slurm, refused
from katib.places.machine.slurm.script import (
    OF_A_SCRIPT,
    WITHIN,
    GeneralOptions,
    annotated_options,
    gang_options,
    have_tasks,
    requested_options,
)
from katib.places.machine.slurm.steps import step_environment

PUSHED: Final = frozenset({CollectorKind.PUSH, CollectorKind.CUSTOM})
"""Those that need an address of this machine which nodes reach. `PrometheusMetric` is asked at the nodes."""

NODE_ADDRESS_VARIABLE: Final = "KATIB_NODE_ADDRESS"
"""In our environment: where nodes reach this machine."""

_JOB: Final = Kind("batch/v1", "Job")


class SlurmGate:
    """Asks Slurm whether it takes the trials of an experiment.

    Args:
        slurm: Calls Slurm.
        options: Of `sbatch`, for every job.
        allocation: The job whose steps trials become; empty where they are jobs of their own.
        address: Where nodes reach this machine; empty where that is not known.
    """

    def __init__(self, slurm: Slurm, options: GeneralOptions, allocation: str = "", address: str = "") -> None:
        self._address = address
        self._slurm = slurm
        self._allocation = allocation
        self._options = options

    def check(
        self, kind: Kind, templates: Sequence[tuple[Mapping[str, Any], int]], path: str, spec: ExperimentSpec
    ) -> tuple[Sequence[FieldError], Sequence[str]]:
        """Return why its trials cannot run in Slurm, and what Slurm warns of.

        Args:
            kind: Of the job.
            templates: Of the pods of a trial, each with their number; may be malformed or hold placeholders, of which
                nothing is asked.
            path: Where the job stands.
            spec: With defaults.
        """
        collector = spec.metrics_collector_spec
        if collector is not None and collector.kind in PUSHED and not self._address:
            cause = f"{collector.kind} does not reach this machine from the nodes of Slurm"
            remedy = "give --address HOST, by which nodes reach this machine, or print metrics, or write them to files"
            return [FieldError("spec.metricsCollectorSpec.collector.kind", cause, remedy, "slurm-collector")], ()
        if not templates:
            return (), ()
        try:
            answer = self._answer(kind, templates, path)
        except InvalidError as error:
            return error.errors, ()
        errors = refused(answer.refusal).errors if answer.refusal else ()
        return errors, [f"sbatch: {warning}" for warning in answer.warnings]

    def _answer(self, kind: Kind, templates: Sequence[tuple[Mapping[str, Any], int]], path: str) -> Answer:
        """Ask about the job: each pod of a Job is one of its own, those of other kinds are one together."""
        annotations = mapping(mapping(templates[0][0].get("metadata")).get("annotations"))
        is_alone, is_step = kind == _JOB, bool(self._allocation)
        own = annotated_options(annotations, path, OF_A_SCRIPT if is_alone else ())
        written = self._options.beside([word for word in own if not has_placeholder(word)])
        requests = [request for template, count in templates for request in [_request(template)] * count]
        if kind.kind == "MPIJob":  # whose tasks share what its launcher requests
            requests = [Request()]
        requested = gang_options(requests)
        if is_alone:
            requested = requested_options(requests[0], is_one_task=is_step and not have_tasks(own))
        options = (*requested, *written)
        if not is_step:
            return self._slurm.check(options)
        environ = self._slurm.environment
        return self._slurm.check_step(options, step_environment(environ, environ))


def _request(template: Mapping[str, Any]) -> Request:
    try:
        return Request.of_template(dict(template))
    except (ValueError, TypeError, AttributeError):  # a placeholder, or what is refused elsewhere
        return Request()


_APPTAINERS: Final = ("apptainer", "singularity")
_OPTION: Final = "--container-image"
_CARDS: Final = {"nvidia.com/gpu": "--nv", "amd.com/gpu": "--rocm"}
_OF_PYTHON: Final = ("PYTHONPATH", "PYTHONHOME")
"""Of our environment: in an image they would lead to files of another Python."""


def node_images(choice: str, slurm: Slurm, *, is_inside: bool) -> NodeImages | None:
    """Return what runs images on nodes; None: commands run with the files of the node.

    Args:
        choice: What the user says of containers; `auto` takes pyxis, if it is there, before Apptainer.
        is_inside: Whether pods are steps of an allocation. Several pods that share one are killed without SIGTERM where
            pyxis starts steps of their own for them; so `auto` takes pyxis last.
        slurm: Calls Slurm, with the PATH in which Apptainer is looked for.

    Raises:
        TerminalError: What was asked for is not here.
    """
    if choice == "never":
        return None
    if choice in {"podman", "docker"}:
        cause = f"--containers {choice} is for trials of this machine"
        raise TerminalError(f"{cause}; with --on slurm, write pyxis, apptainer, auto or never")
    program = next((name for name in _APPTAINERS if shutil.which(name, path=slurm.environment.get("PATH"))), None)
    prefers_program = choice == "auto" and is_inside and program is not None
    if choice != _APPTAINERS[0] and not prefers_program and _has_pyxis(slurm):
        return _of_pyxis
    if choice == "pyxis" or program is None:
        missing = [
            *(["srun has no option --container-image (pyxis)"] if choice != _APPTAINERS[0] else []),
            *(["neither apptainer nor singularity is in PATH"] if choice != "pyxis" else []),
        ]
        remedy = "load its module, or leave the option out, so that commands run with the files of the nodes"
        raise TerminalError(f"--containers {choice}: {' and '.join(missing)}; {remedy}")
    return lambda run, environ, container: _of_apptainer(program, run, environ, container)


def _has_pyxis(slurm: Slurm) -> bool:
    try:
        return _OPTION in slurm.run(("srun", "--help")).stdout
    except (FileNotFoundError, UnavailableError):
        return False


def _of_apptainer(
    program: str, run: ImageRun, environ: Mapping[str, str], container: Mapping[str, Any]
) -> ContainerCommand:
    resources = container.get("resources") or {}
    asked = {*(resources.get("limits") or ()), *(resources.get("requests") or ())}
    words = [program, "exec" if run.entrypoint else "run"]
    words += [option for name, option in _CARDS.items() if name in asked]
    for source, target, read_only in run.mounts:
        words += ["--bind", f"{source}:{target}{':ro' if read_only else ''}"]
    if run.working_directory:
        words += ["--pwd", run.working_directory]
    is_file = run.image.startswith(("/", ".")) or "://" in run.image
    words += [run.image if is_file else f"docker://{run.image}", *run.entrypoint, *run.arguments]
    # An image has variables of its own, such as PATH; these win over them.
    own = {f"{program.upper()}ENV_{name}": value for name, value in run.environment.items()}
    return _command(words, run, environ, container, own)


def _of_pyxis(run: ImageRun, environ: Mapping[str, str], container: Mapping[str, Any]) -> ContainerCommand:
    mounts = ",".join(f"{source}:{target}{':ro' if read_only else ''}" for source, target, read_only in run.mounts)
    options = [f"{_OPTION}={_enroot_name(run.image)}", f"--container-mounts={mounts}"]
    options += [f"--container-env={','.join(run.environment)}"]
    if run.working_directory:
        options.append(f"--container-workdir={run.working_directory}")
    if not run.entrypoint:
        if not run.arguments:
            cause = f'container "{container.get("name", "")}" has no command, and pyxis does not know that of its image'
            raise invalid("spec.trialTemplate", cause, "write the command out", "command-missing")
        options.append("--container-entrypoint")
    # A step within the job, on the node of the pod, with what the pod has.
    step = ["--overlap", "--ntasks=1", "--nodes=1", "--mem=0", "--input=none", "--unbuffered", *options]
    name = f"{WITHIN}$SLURM_JOB_ID.$SLURM_STEP_ID:$$"
    words = ["sh", "-c", f'exec srun --nodelist="$SLURMD_NODENAME" --job-name="{name}" "$@"', "srun", *step]
    return _command([*words, *run.entrypoint, *run.arguments], run, environ, container, {})


def _enroot_name(image: str) -> str:
    """Return an image as Enroot names it: with # after its registry."""
    image = image.removeprefix("docker://")
    registry, slash, rest = image.partition("/")
    is_host = slash and registry and registry != "." and (":" in registry or "." in registry or registry == "localhost")
    return f"{registry}#{rest}" if is_host and "#" not in image else image


def _command(
    words: list[str],
    run: ImageRun,
    environ: Mapping[str, str],
    container: Mapping[str, Any],
    further: Mapping[str, str],
) -> ContainerCommand:
    kept = {name: value for name, value in environ.items() if name not in _OF_PYTHON}
    return ContainerCommand(str(container.get("name", "")), tuple(words), {**kept, **run.environment, **further}, "")
