"""Texts about a trial's failure.

Such a text states how a container ended and may close with the last line that it printed:
`container "main" of pod x-1 exited with 1; last output: ValueError: boom`. Jobs on one machine write it into their
conditions, and on a cluster the collector leaves the same last line for the controller. Readers want that line first,
so the message of the trial is derived from the text here, the same way in both homes.
"""

from __future__ import annotations

import re

LAST_OUTPUT = "last output: "
"""Prefix of the last line, also used by the collector of a pod."""

TRIAL_HAS_FAILED = "Trial has failed"

EXIT_WITHOUT_OUTPUT = "its program ended with exit code"
"""Beginning of a cause if only the exit code is known."""

OUT_OF_MEMORY = "was killed because it ran out of memory"
"""End of a container that exceeded its memory limit, in both homes."""

LAST_OUTPUT_BYTES = 2_000
"""Number of bytes at the end of an output that are searched for its last line."""

_LINE_CHARACTERS = 300
_WORD_CHARACTERS = 8
_LAYOUT = "\t\n\v\f\r\b\a\x1b"
_SEPARATOR = f"; {LAST_OUTPUT}"
_TERMINAL_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, movements
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # texts for the terminal itself, such as its title
    r"|\x1b[ -/]*[0-~]"
)
_OF_A_LAUNCHER = re.compile(
    r"make(?:\[\d+\])?: \*\*\* .* Error \d+$|(?:Run|Try) '.*--help' for |ERROR conda\.cli\.main_run|"
    r"srun: (?:error: .*: Exited with exit code|Terminating )|"
    r"Error: exit status \d+$|time=\S+ level=\w+ .*\bargo=true\b"
)
"""Last lines of launchers whose command has failed; the cause precedes them."""
_EXIT_CODE = re.compile(r"\b(?:exit code|exited with) (\d+)")
_CONTAINER = re.compile(r'^container "?[^\s"]+"? (?:of|in) pod \S+?(?P<colon>:)? ', re.IGNORECASE)
_INIT_CONTAINER = re.compile(r"^init container (?P<name>\S+) in pod \S+ ", re.IGNORECASE)
_TITLE = re.compile(r" \(replica (?P<name>[^\s()]+)\)")
_OF_REPLICA = re.compile(r"replica (\S+): (.*)", re.DOTALL)
_JOB_OF_A_SET = re.compile(r"^job \S+ failed \(\w+\): ")
_BACK_OFF_LIMIT = re.compile(r"; the back-off limit of \d+ is reached$")

_OUTSIDE_CAUSE = re.compile(
    r"\bpreempt(?:ed|ion)\b|\bits node (?:failed|did not boot)\b|\bcancelled in Slurm\b|\bNodeLost\b|\bEvicted\b"
    r"|\bno space left on device\b|\bdisk quota exceeded\b",
    re.IGNORECASE,
)


def has_outside_cause(message: str) -> bool:
    """Return whether a failure comes from a node, a scheduler or a full disk, and not from the parameters."""
    return _OUTSIDE_CAUSE.search(message) is not None


def last_line(output: bytes) -> str:
    """Return the last line with text at the end of an output, without colours and control characters.

    Empty if that line is not text; a few letters among binary data do not count as text. A launcher's line about a
    failed command is skipped if another line precedes it.
    """
    text = _TERMINAL_CONTROL.sub("", output.decode(errors="replace"))
    lines = [line.strip() for line in reversed(re.split(r"[\r\n]", text)) if line.strip()]
    line = next((line for line in lines if not _OF_A_LAUNCHER.match(line)), next(iter(lines), ""))
    if _is_binary(line) or (len(line) < _WORD_CHARACTERS and _is_binary(text)):
        return ""
    return "".join(c if c.isprintable() else " " for c in line[:_LINE_CHARACTERS])


def readable(output: bytes) -> str:
    """Return an output as a terminal leaves it: without colours, and with the last state of each overwritten line."""
    lines = _TERMINAL_CONTROL.sub("", output.decode(errors="replace")).split("\n")
    last = (line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return "\n".join("".join(c if c.isprintable() or c == "\t" else " " for c in line) for line in last).rstrip()


def _is_binary(text: str) -> bool:
    """Return whether more than a fifth of a text is undecodable bytes or control characters."""
    strange = sum(c == "\ufffd" or (c < " " and c not in _LAYOUT) for c in text)
    return strange * 5 > len(text)


def with_last_output(how: str, line: str) -> str:
    """Return a failure together with the last line that was printed."""
    return f"{how}{_SEPARATOR}{line}" if line else how


def with_remark(text: str, remark: str) -> str:
    """Return a text about a failure with a remark before the last line that was printed."""
    how, _, line = text.partition(_SEPARATOR)
    return with_last_output(f"{how}; {remark}", line)


def failure_cause(text: str) -> str:
    """Return a text about a failure with its explanation first.

    `ValueError: boom (exit code 1)`: the last line of a program that exited with a code usually gives the reason. A
    killed program could not print one, so the signal comes first. All of this follows the replica, if the job has
    several. An init container is named, because its end is not the end of the program.
    """
    how, _, line = text.partition(_SEPARATOR)
    if title := _TITLE.search(how):
        return f"replica {title['name']}: {failure_cause(text.replace(title[0], '', 1))}"
    if init := _INIT_CONTAINER.match(how):
        return with_last_output(f"its init container {init['name']} {how[init.end() :]}", line)
    exit_code = _EXIT_CODE.search(how)
    if exit_code is not None:
        code = exit_code.group(1)
        return f"{line} (exit code {code})" if line else f"{EXIT_WITHOUT_OUTPUT} {code}"
    how = _BACK_OFF_LIMIT.sub("", _JOB_OF_A_SET.sub("", how))
    found = _CONTAINER.match(how)
    if found is not None:
        how = ("" if found["colon"] else "its program ") + how[found.end() :]
    return with_last_output(how, line)


def pod_title(name: str, replica: str) -> str:
    """Return the title of a pod in a text about a failure, with its replica if its job has several."""
    return f"{name} (replica {replica})" if replica else name


def of_replica(cause: str) -> tuple[str, str]:
    """Return the replica at the beginning of a cause, empty if there is none, and the rest of the cause."""
    found = _OF_REPLICA.fullmatch(cause)
    return (found[1], found[2]) if found else ("", cause)


def trial_failure(message: str) -> str:
    """Return the cause in the message of a trial's Failed condition."""
    return message.removeprefix(f"{TRIAL_HAS_FAILED}: ")
