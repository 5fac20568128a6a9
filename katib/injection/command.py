"""The primary container's command, wrapped so that the collector can tell how the program ended.

The program and its arguments are handed to a shell as positional parameters, so no text of theirs is read by a shell a
second time, and references such as `$(NAME)` stay elements of a list that Kubernetes expands as before.

What the shell does beside running the program:

- It writes `running`, then `completed` or `failed`, into `<directory>/<its own process id>.pid`. Collectors find the
  process by the text `echo completed > <directory>` in its command line.
- It ends as the program does. A program that the collector stopped early ends well.
- It passes signals on: a container asks its first process to end, which is the shell.

Text for the shell spells `$$` as `$$$$`, because Kubernetes makes one `$` of two. The program starts in the background
of the shell, for only then do signals reach the shell at once; POSIX has it ignore SIGINT and SIGQUIT there, which is
why these two are passed on as SIGTERM.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from katib.injection.paths import MetricsPath

_PLAIN_PATH = re.compile(r"[\w@%+=:,./-]+", re.ASCII)

_START = """\
katib_signalled= katib_program=
trap 'katib_signalled=1; [ -z "$katib_program" ] || kill -TERM "$katib_program"' TERM HUP INT QUIT
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

_STOPPED = """\
katib_word=
[ "$katib_status" -eq 0 ] || ! [ -f {marker} ] || read -r katib_word < {marker}
if [ "$katib_word" = early-stopped ]; then
  echo Training Container was Early Stopped
  katib_status=0
fi
"""

_END = """\
if [ "$katib_status" -eq 0 ]; then
  echo completed > {marker}
else
  echo failed > {marker}
fi
exit "$katib_status"
"""


def wrapped(program: Sequence[str], path: MetricsPath, *, to_file: bool, may_stop: bool) -> tuple[list[str], list[str]]:
    """Return the command and the arguments of a container that runs the program in the wrapping shell.

    Args:
        program: Command and arguments as the template has them; not empty.
        path: Where metrics go; its directory holds the markers.
        to_file: Whether output is written to the path, for the collector to read and print.
        may_stop: Whether the collector may stop the program early.
    """
    marker = f"{_for_shell(path.directory)}/$$$$.pid"
    # Appended: what a restarted container prints must not replace what the collector has not read yet.
    redirection = f" 1>>{_for_shell(path.path)} 2>&1" if to_file else ""
    script = _START + (_STOPPED if may_stop else "") + _END
    return ["sh", "-c", script.format(marker=marker, redirection=redirection)], list(program)


def _for_shell(path: str) -> str:
    """Return a path for the shell. A plain one stays bare, as collectors search for it in command lines."""
    quoted = path if _PLAIN_PATH.fullmatch(path) else shlex.quote(path)
    return quoted.replace("$", "$$")
