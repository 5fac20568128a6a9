"""The primary container's command, wrapped so that the collector knows how the program ended.

The program and its arguments are handed to a shell as positional parameters, so no text of theirs is read by a shell a
second time, and references such as `$(NAME)` stay elements of a list that Kubernetes expands as before.

What the shell does beside running the program:

- It writes `running`, then `completed` or `failed` and the exit code, into `<directory>/<its own process id>.pid`.
  Collectors find the process by the text `echo completed > <directory>` in its command line.
- It ends as the program does. A program that the collector stopped early ends well.
- It passes signals on: a container asks its first process to end, which is the shell.
- Where asked to, it lets all users read what the program left in a directory: the checkpoints that another user copies.
- Where asked to (`Patience`), it stays after a program that ended well until `<its own process id>.collected` says that
  the collector is done. A native sidecar is ended as soon as no program runs any more, and it needs time to store.

Text for the shell spells `$$` as `$$$$`, because Kubernetes makes one `$` of two. The program starts in the background
of the shell, for only then do signals reach the shell at once; POSIX has it ignore SIGINT and SIGQUIT there, which is
why these two are passed on as SIGTERM.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from katib.cluster.injection.settings import MetricsPath

_PLAIN_PATH = re.compile(r"[\w@%+=:,./-]+", re.ASCII)

_SPARE_SECONDS = 60.0
"""The shell waits longer than the collector tries, so that it is the collector who says why it gave up."""

_SHARE_OF_GRACE = 0.25
"""Of the pod's grace period, for which the shell still waits after SIGTERM; the collector has the rest."""

_TENTHS_AT_ONCE = 50
"""For so many tenths of a second the shell looks ten times a second, then once."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the shell waits for the collector after a program that ended well.

    Attributes:
        seconds: How long the collector tries to store the readings.
        grace_seconds: Of the pod; everything has to end within it once the pod is being deleted.
    """

    seconds: float
    grace_seconds: float


_START = """\
katib_signalled= katib_told= katib_program=
trap 'katib_signalled=1 katib_told=1; [ -z "$katib_program" ] || kill -TERM "$katib_program"' TERM HUP INT QUIT
echo running > {marker}
"$0" "$@"{redirection} &
katib_program=$!
[ -z "$katib_signalled" ] || kill -TERM "$katib_program"
wait "$katib_program"
katib_status=$?
while [ -n "$katib_signalled" ]; do
  katib_signalled=
  wait "$katib_program"
  katib_again=$?
  [ "$katib_again" -eq 127 ] || katib_status=$katib_again
done
"""

# Many libraries store a file under another name first, readable by its owner only, and keep it so.
_SHARE = """\
chmod -R a+rX {shared} 2>/dev/null
"""

_STOPPED = """\
katib_word=
[ "$katib_status" -eq 0 ] || ! [ -f {marker} ] || read -r katib_word < {marker}
if [ "$katib_word" = early-stopped ]; then
  echo Training Container was Early Stopped
  katib_status=0
fi
"""

_AWAIT = """\
(umask 0; echo awaited > {collected}) 2>/dev/null
"""

_END = """\
if [ "$katib_status" -eq 0 ]; then
  echo completed > {marker}
else
  echo failed "$katib_status" > {marker}
fi
exit "$katib_status"
"""

# A program whose pod is ended before its readings are stored counts as ended by the signal, so that its job runs
# it again. Whatever cannot be written or read ends the wait: it must never be for nothing. The marker is written again
# and again because a collector that stops the program in the moment of its end writes its own word over it.
_END_COLLECTED = """\
katib_program= katib_word=
if [ "$katib_status" -eq 0 ]; then
  echo completed > {marker} && [ -f {collected} ] && katib_word=awaited
else
  echo failed "$katib_status" > {marker}
fi
katib_tenths={tenths} katib_pause=0.1 katib_step=1
while [ "$katib_word" = awaited ] && [ "$katib_tenths" -gt 0 ]; do
  echo completed > {marker}
  if [ -n "$katib_told" ]; then
    [ "$katib_tenths" -le {told_tenths} ] || katib_tenths={told_tenths}
    katib_pause=0.1 katib_step=1
  elif [ "$katib_tenths" -le {slow_tenths} ]; then
    katib_pause=1 katib_step=10
  fi
  sleep "$katib_pause" 2>/dev/null || sleep 1 || break
  katib_tenths=$$((katib_tenths - katib_step))
  katib_word=
  ! [ -f {collected} ] || read -r katib_word < {collected}
done
if [ "$katib_word" = awaited ] && [ -n "$katib_told" ]; then
  katib_status=143
fi
exit "$katib_status"
"""


def wrapped(
    program: Sequence[str],
    path: MetricsPath,
    *,
    to_file: bool,
    may_stop: bool,
    patience: Patience | None = None,
    shared: str = "",
) -> tuple[list[str], list[str]]:
    """Return the command and the arguments of a container that runs the program in the wrapping shell.

    Args:
        program: Command and arguments as the template has them; not empty.
        path: Where metrics go; its directory holds the markers.
        to_file: Whether output is written to the path, for the collector to read and print.
        may_stop: Whether the collector may stop the program early.
        patience: How long to wait for the collector after the program; None where it keeps the pod by itself.
        shared: Directory that all users may read when the program has ended; empty: none.
    """
    files = f"{_for_shell(path.directory)}/$$$$"
    names = {"marker": f"{files}.pid", "collected": f"{files}.collected", "shared": _for_shell(shared)}
    # Appended: what a restarted container prints must not replace what the collector has not read yet.
    redirection = f" 1>>{_for_shell(path.path)} 2>&1" if to_file else ""
    script = _START + (_SHARE if shared else "") + (_STOPPED if may_stop else "")
    if patience is None:
        text = (script + _END).format(**names, redirection=redirection)
    else:
        text = (_AWAIT + script + _END_COLLECTED).format(**names, redirection=redirection, **_tenths(patience))
    return ["sh", "-c", text], list(program)


def _tenths(patience: Patience) -> dict[str, int]:
    """Return how often the waiting shell looks, in tenths of seconds."""
    tenths = round(10 * (patience.seconds + _SPARE_SECONDS))
    told_tenths = int(10 * _SHARE_OF_GRACE * patience.grace_seconds)
    return {"tenths": tenths, "slow_tenths": tenths - _TENTHS_AT_ONCE, "told_tenths": told_tenths}


def _for_shell(path: str) -> str:
    """Return a path for the shell. A plain one stays bare, as collectors search for it in command lines."""
    quoted = path if _PLAIN_PATH.fullmatch(path) else shlex.quote(path)
    return quoted.replace("$", "$$")
