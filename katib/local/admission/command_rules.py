"""Rules about what a container starts: there must be a command, and this machine must have it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from katib.api.wording import shown
from katib.local.admission.host import HostCapacity, Machine
from katib.local.findings import Findings, exists, is_directory, is_file, is_given, mappings, text, texts
from katib.templates import has_placeholder

OFFER: Final = "run the image with --containers auto where podman or docker is installed"
"""What helps where something is not on this machine."""

_PYTHON = re.compile(r"python[0-9.]*")
_SHELL = re.compile(r"(?:ba|da|z)?sh")
_OPTIONS: Final = {_PYTHON: re.compile(r"-[uBOEIqsSv]+"), _SHELL: re.compile(r"-[eux]+")}
"""Options of interpreters that have no value; after any other one, the next word need not be a script."""

_SERVICE_NAME = re.compile(r"[a-z0-9]\.svc\b")


def check_command(
    container: Mapping[str, Any], path: str, mounts: Collection[str], machine: Machine, findings: Findings
) -> None:
    """Check what a container starts.

    Args:
        container: The container.
        path: Where it stands.
        mounts: Paths that lead to volumes of the trial; what lies there is not known yet.
        machine: Where commands are looked for; what an init container may still write is not.
        findings: Takes what is found.
    """
    _check_names_of_services(container, path, findings)
    if machine.capacity.runs_images:
        if not text(container.get("image")):
            remedy = "name an image: containers run in their images here"
            findings.error(f"{path}.image", "it is missing", remedy, "image-missing")
        return
    directory = _check_working_directory(container, path, mounts, machine, findings)
    if not is_given(container.get("command")):
        cause = "it is missing, and the entry point of the image is unknown because images are not run here"
        remedy = f"give the command with its full path or name, or {OFFER}"
        findings.error(f"{path}.command", cause, remedy, "command-missing")
        return
    words = texts(container.get("command")) + texts(container.get("args"))
    if not words or _is_unknown(words[0], mounts):
        return
    if machine.is_settled or "/" not in words[0]:
        program, search_path = words[0], _search_path(container, machine.capacity)
        if program not in machine.capacity.provided or search_path != machine.capacity.search_path:
            _check_program(program, f"{path}.command[0]", directory, search_path, findings)
    if machine.is_settled:
        _check_script(words, path, len(texts(container.get("command"))), mounts, directory, findings)


def _check_working_directory(
    container: Mapping[str, Any], path: str, mounts: Collection[str], machine: Machine, findings: Findings
) -> Path | None:
    """Return the directory that relative paths start from, None when it is not known yet."""
    directory = container.get("workingDir")
    if not is_given(directory):
        return machine.workspace
    if not text(directory) or _is_unknown(str(directory), mounts):
        return None
    whole = Path(machine.workspace or "/", str(directory))
    if not Path(str(directory)).is_absolute() and machine.workspace is None:
        return None
    if machine.is_settled and not is_directory(whole):
        remedy = f"create it, give another, leave it out to work beside the experiment's file, or {OFFER}"
        findings.error(
            f"{path}.workingDir", f"{shown(directory)} is not a directory here", remedy, "working-directory-missing"
        )
        return None
    return whole if is_directory(whole) else None


def _check_program(program: str, path: str, directory: Path | None, search_path: str, findings: Findings) -> None:
    is_path = "/" in program
    if is_path and not Path(program).is_absolute() and directory is None:
        return
    file = Path(directory or "/", program)
    if is_path and is_file(file) and not os.access(file, os.X_OK):
        cause = f"{shown(program)} is not executable"
        findings.error(path, cause, f"chmod +x {program}, or start it with its interpreter", "command-not-executable")
    elif not is_file(file) if is_path else shutil.which(program, path=search_path) is None:
        remedy = f"install it, use a full path, or {OFFER}"
        findings.error(path, f"{shown(program)} is not on this machine", remedy, "command-not-found")


def _check_script(
    words: list[str],
    path: str,
    command_length: int,
    mounts: Collection[str],
    directory: Path | None,
    findings: Findings,
) -> None:
    """Look for the script in `python /opt/train.py`: it often is in an image and not on this machine."""
    options = next((o for name, o in _OPTIONS.items() if name.fullmatch(Path(words[0]).name)), None)
    i = next((i for i, word in enumerate(words) if i and not (options and options.fullmatch(word))), len(words))
    if options is None or i == len(words) or words[i].startswith("-") or _is_unknown(words[i], mounts):
        return
    script = Path(directory or "/", words[i])
    if (Path(words[i]).is_absolute() or directory is not None) and not exists(script):
        place = f"command[{i}]" if i < command_length else f"args[{i - command_length}]"
        remedy = f"copy it here, use the path it has on this machine, or {OFFER}"
        findings.error(f"{path}.{place}", f"{shown(words[i])} is not on this machine", remedy, "command-not-found")


def _check_names_of_services(container: Mapping[str, Any], path: str, findings: Findings) -> None:
    values = [text(entry.get("value")) for _, entry in mappings(container.get("env"))]
    for field, found in (
        ("command", texts(container.get("command"))),
        ("args", texts(container.get("args"))),
        ("env", values),
    ):
        if any(map(_SERVICE_NAME.search, found)):
            findings.notice(f"{path}.{field}", "names of services (.svc) lead nowhere on this machine")


def _search_path(container: Mapping[str, Any], host: HostCapacity) -> str:
    own = [text(entry.get("value")) for _, entry in mappings(container.get("env")) if entry.get("name") == "PATH"]
    return own[-1] if own and own[-1] and "$(" not in own[-1] else host.search_path


def _is_unknown(word: str, mounts: Collection[str]) -> bool:
    """Return whether a word means something only when the trial runs: a value, a variable, a file of a volume."""
    is_mounted = any(word == mount or word.startswith(f"{mount.rstrip('/')}/") for mount in mounts)
    return is_mounted or has_placeholder(word) or "$(" in word
