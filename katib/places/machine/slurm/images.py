"""Images of trials on the nodes of Slurm: by pyxis, a plugin of Slurm, or by Apptainer (or Singularity).

Both run as the user's account, keep the environment of the job, and have caches of their own. Tests run stand-ins of
them. The rest of the room knows them by `NodeImages` alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any, Final

from katib.errors import TerminalError, UnavailableError, invalid
from katib.places.machine.pods.environment import ContainerCommand
from katib.places.machine.pods.image_runs import ImageRun
from katib.places.machine.pods.images import NodeImages
from katib.places.machine.slurm.commands import Slurm
from katib.places.machine.slurm.script import WITHIN

_APPTAINERS: Final = ("apptainer", "singularity")
_OPTION: Final = "--container-image"
_CARDS: Final = {"nvidia.com/gpu": "--nv", "amd.com/gpu": "--rocm"}
_OF_PYTHON: Final = ("PYTHONPATH", "PYTHONHOME")
"""Of our environment: in an image they would lead to files of another Python."""


def node_images(choice: str, slurm: Slurm, *, is_inside: bool) -> NodeImages | None:
    """Return the runner of images on nodes; None: commands run with the files of the node.

    Args:
        choice: The user's option; `auto` takes pyxis, if it is there, before Apptainer.
        is_inside: Whether pods are steps of an allocation. Several pods that share one are killed without SIGTERM if
            pyxis starts steps of their own for them; so `auto` takes pyxis last.
        slurm: Calls Slurm, with the PATH in which Apptainer is looked for.

    Raises:
        TerminalError: The choice is not available.
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
