"""Rules about what a container starts: there must be a command, and this machine must have it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

from katib.api.wording import shown
from katib.local.admission.host import HostCapacity, Machine
from katib.local.findings import Part, exists, is_directory, is_file
from katib.templates import has_placeholder

OFFER: Final = "run the image with --containers auto where podman or docker is installed"
"""What helps where something is not on this machine."""

_PYTHON = re.compile(r"python[0-9.]*")
_SHELL = re.compile(r"(?:ba|da|z)?sh")
_OPTIONS: Final = {_PYTHON: re.compile(r"-[uBOEIqsSv]+"), _SHELL: re.compile(r"-[eux]+")}
"""Options of interpreters that have no value; after any other one, the next word need not be a script."""

_SERVICE_NAME = re.compile(r"[a-z0-9]\.svc\b")


def check_command(container: Part, mounts: Collection[str], machine: Machine) -> None:
    """Check what a container starts.

    Args:
        container: The container.
        mounts: Paths that lead to volumes of the trial; what lies there is not known yet.
        machine: Where commands are looked for; what an init container may still write is not.
    """
    values = [entry["value"].text for entry in container["env"]]
    words = [*container["command"].words, *container["args"].words]
    written = {field: [word.value for word in container[field].words] for field in ("command", "args")}
    for field, found in {**written, "env": values}.items():
        if any(map(_SERVICE_NAME.search, found)):
            container[field].notice("names of services (.svc) lead nowhere on this machine")
    if machine.capacity.runs_images:
        if not container["image"].text:
            remedy = "name an image: containers run in their images here"
            container["image"].error("it is missing", remedy, "image-missing")
        return
    directory = _working_directory(container["workingDir"], mounts, machine)
    cause = "it is missing, and the entry point of the image is unknown because images are not run here"
    remedy = f"give the command with its full path or name, or {OFFER}"
    if not container["command"].require(remedy, "command-missing", cause):
        return
    if not words or _is_unknown(words[0].value, mounts):
        return
    program, search_path = words[0], _search_path(container["env"], machine.capacity)
    is_ours = program.value in machine.capacity.provided and search_path == machine.capacity.search_path
    if machine.capacity.is_scheduled:
        return  # nodes may have other programs than this machine
    if not is_ours and (machine.is_settled or "/" not in program.value):
        _check_program(program, directory, search_path)
    if machine.is_settled:
        _check_script(words, mounts, directory)


def _working_directory(place: Part, mounts: Collection[str], machine: Machine) -> Path | None:
    """Return the directory that relative paths start from, None when it is not known yet; check that it is there."""
    if not place.is_given:
        return machine.workspace
    if not place.text or _is_unknown(place.text, mounts):
        return None
    whole = Path(machine.workspace or "/", place.text)
    if not Path(place.text).is_absolute() and machine.workspace is None:
        return None
    if machine.is_settled and not is_directory(whole):
        remedy = f"create it, give another, leave it out to work beside the experiment's file, or {OFFER}"
        place.error(f"{shown(place.text)} is not a directory here", remedy, "working-directory-missing")
    return whole if is_directory(whole) else None


def _check_program(word: Part, directory: Path | None, search_path: str) -> None:
    program = str(word.value)
    is_path, file = "/" in program, Path(directory or "/", program)
    if is_path and not Path(program).is_absolute() and directory is None:
        return
    if is_path and is_file(file) and not os.access(file, os.X_OK):
        remedy = f"chmod +x {program}, or start it with its interpreter"
        word.error(f"{shown(program)} is not executable", remedy, "command-not-executable")
    elif not is_file(file) if is_path else shutil.which(program, path=search_path) is None:
        remedy = f"install it, use a full path, or {OFFER}"
        word.error(f"{shown(program)} is not on this machine", remedy, "command-not-found")


def _check_script(words: list[Part], mounts: Collection[str], directory: Path | None) -> None:
    """Look for the script in `python /opt/train.py`: it often is in an image and not on this machine."""
    options = next((o for name, o in _OPTIONS.items() if name.fullmatch(Path(words[0].value).name)), None)
    word = next((word for word in words[1:] if not (options and options.fullmatch(word.value))), None)
    if options is None or word is None or word.value.startswith("-") or _is_unknown(word.value, mounts):
        return
    if (Path(word.value).is_absolute() or directory is not None) and not exists(Path(directory or "/", word.value)):
        remedy = f"copy it here, use the path it has on this machine, or {OFFER}"
        word.error(f"{shown(word.value)} is not on this machine", remedy, "command-not-found")


def _search_path(env: Part, host: HostCapacity) -> str:
    own = [entry["value"].text for entry in env if entry["name"].value == "PATH"]
    return own[-1] if own and own[-1] and "$(" not in own[-1] else host.search_path


def _is_unknown(word: str, mounts: Collection[str]) -> bool:
    """Return whether a word means something only when the trial runs: a value, a variable, a file of a volume."""
    is_mounted = any(word == mount or word.startswith(f"{mount.rstrip('/')}/") for mount in mounts)
    return is_mounted or has_placeholder(word) or "$(" in word
