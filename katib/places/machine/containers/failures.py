"""Translation of podman's and docker's output into errors with remedies. Pure.

A client exits with 125 if it failed itself, with 126 or 127 if the program of the container could not be executed. A
program may exit with these codes too, and print similar text. So if the runtime confirms that the first process of the
container has started, they are the program's; otherwise one of them counts only together with the client's own last
line.
"""

from __future__ import annotations

import re

from katib.places.machine.containers.arguments import RuntimeProgram
from katib.places.machine.pods.image_runs import ImageRun, Pull
from katib.places.machine.processes.handle import SpawnError

_LAST_WORDS = {
    RuntimeProgram.PODMAN: re.compile(r"^Error: (.+)$"),
    RuntimeProgram.DOCKER: re.compile(r"^docker: (.+)$"),
}
_INIT_WORDS = re.compile(
    r"^(?:ERROR \(catatonit:\d+\): failed to exec pid1: |\[FATAL tini \(\d+\)\] exec .* failed: )(.+)$"
)
"""Messages of a container's first process that cannot execute the program; its exit code depends on the vendor."""

_HINTS = re.compile(r"^(Run|See) '\w+ (run )?--help'.*$")
_PREFIXES = re.compile(r"^(Error response from daemon|Error): ")
_LONGEST = 400
_OF_THE_CLIENT = frozenset({125, 126, 127})
_NOT_EXECUTED = frozenset({126, 127})

_NOT_FOUND = re.compile(
    r"executable file .*not found|no such file or directory.*command that was not found", re.IGNORECASE
)
_NO_PERMISSION = re.compile(r"exec(utable)?\b.*permission denied|is a directory", re.IGNORECASE)
_NOT_A_PROGRAM = re.compile(r"exec format error", re.IGNORECASE)
_IMAGE_ABSENT = re.compile(
    r"image not known|no such image|short-name .*did not resolve|unable to find image", re.IGNORECASE
)
_IMAGE_UNKNOWN = re.compile(
    r"manifest unknown|name unknown|repository does not exist|pull access denied|access to the resource is denied"
    r"|unauthorized|authentication required|not found: manifest|short-name",
    re.IGNORECASE,
)
_REGISTRY = re.compile(
    r"initializing source|pinging container registry|registry|i/o timeout|no such host|connection refused"
    r"|TLS handshake",
    re.IGNORECASE,
)
_NO_DAEMON = re.compile(
    r"cannot connect to the docker daemon|is the docker daemon running|cannot connect to podman"
    r"|permission denied while trying to connect to the docker",
    re.IGNORECASE,
)
_LIMITS = re.compile(r"cgroup|rlimit|controller .* is not available|resource limits", re.IGNORECASE)
_IDS = re.compile(r"newuidmap|newgidmap|insufficient UIDs|subuid|subgid|lchown", re.IGNORECASE)
_GPU = re.compile(r"CDI|nvidia|device driver", re.IGNORECASE)
_NETWORK = re.compile(r"netavark|aardvark", re.IGNORECASE)
_WORKDIR = re.compile(r"workdir|chdir to cwd", re.IGNORECASE)


def start_failure(
    program: RuntimeProgram, run: ImageRun, code: int, output: str, *, has_started: bool = False
) -> SpawnError | None:
    """Return why a container did not start; None if the client does not report it."""
    lines = [line for line in output.splitlines() if line.strip() and not _HINTS.match(line)]
    last = lines[-1].strip() if lines else ""
    if found := _INIT_WORDS.match(last):
        return _program_error(run, f"exec: {found.group(1)}") or _machine_error(program, run, found.group(1))
    of_the_client = code in _OF_THE_CLIENT and not has_started
    words = _LAST_WORDS[program].match(last) if of_the_client else None
    return _explained(program, run, code, short(words.group(1))) if words else None


def pull_failure(program: RuntimeProgram, run: ImageRun, output: str, *, is_here: bool = False) -> SpawnError:
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no word"]
    said = short(_PREFIXES.sub("", next((line for line in reversed(lines) if _PREFIXES.match(line)), lines[-1])))
    if _NO_DAEMON.search(said):
        return runtime_down(program, said)
    if is_here:
        cause = f'image "{run.image}" is on this machine, but imagePullPolicy Always asks its registry at every start'
        remedy = "write imagePullPolicy: IfNotPresent to run the image that is here"
        return SpawnError(f"{cause}: {said}", remedy, "image-pull")
    found = _image_error(program, run, said)
    if found is not None:
        return found
    remedy = f"try it by hand: {program} pull {run.image}"
    return SpawnError(f'image "{run.image}" cannot be pulled: {said}', remedy, "image-pull")


def short(text: str) -> str:
    """Return a message on one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def is_daemon_missing(text: str) -> bool:
    """Return whether a message reports that the service behind the client does not answer."""
    return bool(_NO_DAEMON.search(text))


def _explained(program: RuntimeProgram, run: ImageRun, code: int, said: str) -> SpawnError:
    if _NO_DAEMON.search(said):
        return runtime_down(program, said)
    found = _image_error(program, run, said)
    if found is None and code in _NOT_EXECUTED and not _NETWORK.search(said):
        found = _program_error(run, said)
    return found or _machine_error(program, run, said)


def _machine_error(program: RuntimeProgram, run: ImageRun, said: str) -> SpawnError:
    image = run.image
    if _WORKDIR.search(said):
        cause = f'workingDir "{run.working_directory}" cannot be entered in image "{image}": {said}'
        return SpawnError(cause, "change workingDir, or leave it out for that of the image", "container-directory")
    if _GPU.search(said) and run.gpus:
        remedy = "install nvidia-container-toolkit and run `nvidia-ctk cdi generate`, as docs/how-to/containers.md says"
        return SpawnError(f'{program} cannot give its GPUs to image "{image}": {said}', remedy, "container-gpu")
    if _NETWORK.search(said):
        remedy = "install iptables, which it needs, as docs/how-to/containers.md says"
        return SpawnError(
            f'{program} cannot set up the network of image "{image}": {said}', remedy, "container-network"
        )
    if _LIMITS.search(said):
        remedy = "leave the limits out, or let this account limit resources, as docs/how-to/containers.md says"
        return SpawnError(f'{program} cannot limit image "{image}": {said}', remedy, "container-limits")
    if _IDS.search(said):
        remedy = "give this account entries in /etc/subuid and /etc/subgid, as docs/how-to/containers.md says"
        return SpawnError(f'{program} has too few user ids for image "{image}": {said}', remedy, "container-user-ids")
    remedy = f"try it by hand: {program} run --rm {image}"
    return SpawnError(f'{program} cannot start image "{image}": {said}', remedy, "container-start")


def runtime_down(program: RuntimeProgram, said: str) -> SpawnError:
    remedy = "start it (systemctl start docker) and see that this account may use it"
    if program is RuntimeProgram.PODMAN:
        remedy = "see what `podman info` says"
    return SpawnError(f"{program} does not answer: {short(said)}", remedy, "container-runtime-down")


def _image_error(program: RuntimeProgram, run: ImageRun, said: str) -> SpawnError | None:
    image = run.image
    if run.pull is Pull.NEVER and _IMAGE_ABSENT.search(said):
        cause = f'image "{image}" is not on this machine, and imagePullPolicy is Never'
        return SpawnError(cause, f"run {program} pull {image}, or write IfNotPresent", "image-missing")
    if _IMAGE_UNKNOWN.search(said):
        remedy = f"check its name, build it here, or log in first ({program} login)"
        return SpawnError(f'image "{image}" cannot be pulled: {said}', remedy, "image-missing")
    if _REGISTRY.search(said):
        remedy = f"see that its registry can be reached, or load it with {program} load"
        return SpawnError(f'image "{image}" cannot be pulled: {said}', remedy, "image-pull")
    if _IMAGE_ABSENT.search(said):
        return SpawnError(
            f'image "{image}" is not on this machine: {said}', f"run {program} pull {image}", "image-missing"
        )
    return None


def _program_error(run: ImageRun, said: str) -> SpawnError | None:
    command = run.entrypoint[0] if run.entrypoint else (run.arguments or ("its entry point",))[0]
    if _NOT_FOUND.search(said) or "no such file" in said.lower():
        cause = f'command "{command}" is not in image "{run.image}"'
        return SpawnError(cause, "give its path in the image, or another image", "container-command")
    if _NOT_A_PROGRAM.search(said):
        cause = f'command "{command}" of image "{run.image}" is not a program of this machine'
        return SpawnError(cause, "take an image for this processor, or add a #! line", "container-command")
    if _NO_PERMISSION.search(said):
        cause = f'command "{command}" of image "{run.image}" may not be executed'
        return SpawnError(
            cause, "make it executable in the image, or start it with its interpreter", "container-command"
        )
    return None
