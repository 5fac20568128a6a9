"""Batch scripts of Slurm: translates `sbatch --time=1:00:00 train.sh` into a command and options of a trial's job.

Options come from the command line, which takes precedence, and from `#SBATCH` lines above the first command of the
script. Options for the submission, name, repetition or output of a job are left out, because each trial is a job with
its own.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Final

from katib.errors import invalid

SET_BY_US: Final = frozenset(
    {
        *("array", "chdir", "comment", "error", "export", "export-file", "help", "input", "job-name", "ntasks"),
        *("open-mode", "output", "parsable", "quiet", "requeue", "test-only", "usage", "verbose", "version", "wait"),
        "wrap",
    }
)
"""Options of `sbatch` that every job of a trial already has."""

_LONG: Final[Mapping[str, str]] = dict(
    pair.split("=")
    for line in (
        "A=account a=array b=begin B=extra-node-info c=cpus-per-task C=constraint d=dependency D=chdir e=error",
        "F=nodefile G=gpus H=hold i=input J=job-name k=no-kill L=licenses M=clusters m=distribution N=nodes n=ntasks",
        "o=output O=overcommit p=partition q=qos Q=quiet s=oversubscribe S=core-spec t=time v=verbose w=nodelist",
        "W=wait x=exclude",
    )
    for pair in line.split()
)
_ALONE: Final = frozenset(
    {
        *("contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "nice", "no-kill", "no-requeue"),
        *("overcommit", "oversubscribe", "parsable", "propagate", "quiet", "reboot", "requeue", "resv-ports"),
        *("spread-job", "stepmgr", "test-only", "usage", "use-min-nodes", "verbose", "version", "wait"),
    }
)
"""Long options without a value, or with one after `=` only."""

_UNDERSTOOD: Final = frozenset({"ntasks", "chdir", "export"})
"""Members of `SET_BY_US` that affect the template of a trial."""

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_DIRECTIVE: Final = "#SBATCH"
_MOST_CHARACTERS: Final = 1_000_000  # in case it is a large program
_TASK_NUMBER: Final = re.compile(r"\bSLURM_ARRAY_TASK_ID\b")


@dataclass(frozen=True, slots=True)
class Batch:
    """The job that a command submits.

    Attributes:
        options: Options of the job, by long name; empty values for those without one.
        left_out: Names of its other options.
        submits: Whether the command is one of `sbatch`.
        environment: Variables set by `--export`.
        directory: Working directory from `--chdir`; empty for the directory of submission.
    """

    command: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    submits: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""


def batch_of(command: Sequence[str]) -> Batch | None:
    """Return the job that a command submits, or would as a batch script; None if it is unrelated to `sbatch`.

    Raises:
        InvalidError: `sbatch` would reject it, or the script reads its task number but gets no values.
    """
    words = deque(_words_of_line(command[0]) if len(command) == 1 else command)
    if not words:
        return None
    submits = PurePath(words[0]).name == "sbatch"
    if submits:
        words.popleft()
        given = _taken(words, "command")
        if "wrap" in given:
            return _batch(("sh", "-c", given.pop("wrap")), given, submits=True)
        if not words:
            raise invalid("command", "sbatch submits no script", "write it behind sbatch, as train.sh", "batch-script")
        shell: tuple[str, ...] = ()
    else:
        given = {}
        shell = (words.popleft(),) if len(words) > 1 and PurePath(words[0]).name in _SHELLS else ()
    name, text = words[0], text_of(words[0])
    if text is None and submits:
        raise invalid("command", f"{name} cannot be read", "write the path of a batch script", "batch-script")
    directives = _directives(text or "", name)
    if not submits and not directives:
        return None
    if _TASK_NUMBER.search(text or "") and not any("{" in word for word in command):
        cause = f"{name} picks its values by $SLURM_ARRAY_TASK_ID, which no trial has"
        raise invalid("command", cause, f"let it take them as arguments, as `{name} {{lr}}`", "batch-script")
    found = {**directives, **given}
    if "chdir" in found:
        words[0] = str(Path(name).absolute())
    return _batch((*(shell or _interpreter(text or "")), *words), found, submits=submits)


def _words_of_line(line: str) -> list[str]:
    """Return the words of a line; empty if it needs a shell, as for a pipe."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    try:
        words = list(lexer)
        operators = [word for word in words if set(word) <= set("();<>|&")]
        if not operators:
            return shlex.split(line)
    except ValueError:
        return []
    begins = [word for before, word in pairwise([";", *words]) if before in operators or before == ";"]
    if any(PurePath(word).name == "sbatch" for word in begins) and not {"-W", "--wait"} & set(words):
        cause = "sbatch in a line for the shell submits a job of its own, whose output is not read"
        remedy = "give its command alone, as `-- sbatch train.sh {lr}`, and write the rest into the script"
        raise invalid("command", cause, remedy, "batch-script")
    return []


def _batch(command: tuple[str, ...], found: Mapping[str, str], *, submits: bool) -> Batch:
    """Return a command with its relevant options, including several tasks, which its script starts by `srun`."""
    kept = {name: value for name, value in found.items() if name not in SET_BY_US}
    exported = found.get("export", "ALL").split(",")
    may_have = {"ntasks"} if "ALL" in map(str.upper, exported) else {"ntasks", "export"}
    kept |= {name: value for name, value in found.items() if name in may_have}
    return Batch(
        command,
        kept,
        tuple(name for name in found if name not in kept and name not in _UNDERSTOOD),
        submits,
        {name: value for name, equals, value in (part.partition("=") for part in exported) if equals},
        str(Path(found["chdir"]).absolute()) if "chdir" in found else "",
    )


def text_of(path: str | Path) -> str | None:
    """Return the beginning of a file; None if it cannot be read."""
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(_MOST_CHARACTERS)
    except (OSError, ValueError):
        return None


def _interpreter(text: str) -> tuple[str, ...]:
    first = text.partition("\n")[0]
    return tuple(first.removeprefix("#!").split()) if first.startswith("#!") else ("sh",)


def _directives(text: str, name: str) -> dict[str, str]:
    """Return the options in the `#SBATCH` lines of a script above its first command."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith(_DIRECTIVE):
            place = f"{name}:{number}"
            try:
                words = deque(shlex.split(line.removeprefix(_DIRECTIVE), comments=True))
            except ValueError as error:
                raise invalid(place, str(error).lower(), "close the quotation", "batch-script") from error
            found |= _taken(words, place)
            if words:
                raise invalid(place, f'"{words[0]}" is not an option of sbatch', "remove it", "batch-script")
    return found


def _taken(words: deque[str], place: str) -> dict[str, str]:
    """Remove the leading options from words; return their values by long name."""
    found: dict[str, str] = {}
    while words and len(words[0]) > 1 and words[0].startswith("-"):
        word = words.popleft()
        if word == "--":
            break
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            name, equals, value = _LONG.get(word[1], ""), word[2:], word[2:]
        if not name:
            raise invalid(place, f'"{word}" is not an option of sbatch', "write its long name", "batch-script")
        if value and name in _ALONE and not word.startswith("--"):  # -QW
            words.appendleft(f"-{value}")
            value = ""
        elif not equals and name not in _ALONE:
            if not words:
                raise invalid(place, f"--{name} has no value", f"write --{name}=VALUE", "batch-script")
            value = words.popleft()
        found[name] = value
    return found


def batch_notes(batch: Batch, *, counts: bool) -> Iterator[str]:
    """Yield notes about the options of a batch script, which apply only in Slurm."""
    if words := ", ".join(option_words(batch.options)):
        yield f"each trial is a job with {words}" if counts else f"{words}: these options count with --on slurm"
    if batch.left_out:
        yield f"{', '.join(batch.left_out)} of the batch script: left out, as each trial has its own"


def option_words(options: Mapping[str, str]) -> Iterable[str]:
    """Yield options in the form of a pod template's annotation."""
    return (f"{name}={value}" if value else name for name, value in options.items())
