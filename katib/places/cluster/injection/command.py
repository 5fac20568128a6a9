"""Command of the primary container, prefixed with the launcher or Katib's shell.

The launcher (`images/metrics-collector/launch.c`) is a static program that the collector copies into a volume before
the program's container starts. The command and arguments of the template are passed to it unchanged, so references such
as `$(NAME)` stay elements of a list that Kubernetes expands as before.

Katib's own collectors recognize a program by the text of a shell around it and by the files of this shell, so with them
a program still has Katib's shell. It cannot be used with images without a shell.
"""

from __future__ import annotations

from katib.places.cluster.injection.settings import MetricsPath
from metrics_collector.program import LAUNCHER_DIRECTORY
from metrics_collector.seen_program import COMPLETING, EARLY_STOPPED

LAUNCHER = f"{LAUNCHER_DIRECTORY}/launch"

_SPARE_SECONDS = 60.0
"""The launcher waits longer than the collector tries, so that the collector reports why it gave up."""


def launcher(*, file: str, grace_seconds: float, patience_seconds: float | None, shared: str) -> list[str]:
    """Return the command of a container whose arguments are the program and its arguments.

    Args:
        file: File for a copy of the output; empty for none.
        grace_seconds: Grace period of the pod.
        patience_seconds: How long the collector tries to store the readings; None to not wait for it.
        shared: Directory made readable for all users after the program ended; empty for none.
    """
    command = [LAUNCHER, "-d", LAUNCHER_DIRECTORY, "-g", f"{grace_seconds:g}"]
    if file:
        command += ["-o", file]
    if patience_seconds is not None:
        command += ["-w", f"{patience_seconds + _SPARE_SECONDS:.15g}"]
    if shared:
        command += ["-r", shared]
    return [word.replace("$", "$$") for word in [*command, "--"]]  # Kubernetes turns `$$` into `$`


def katib_shell(path: MetricsPath, *, to_file: bool, may_stop: bool) -> list[str]:
    """Return the command of a container whose arguments are the program and its arguments, for Katib's collectors.

    Args:
        path: Path of the metrics; its directory holds the markers.
        to_file: Whether output is written to the path.
        may_stop: Whether the collector may stop the program early.
    """
    marker = f"{path.directory}/$$$$.pid"
    text = f'"$0" "$@" 1>>{path.path} 2>&1' if to_file else '"$0" "$@"'
    if may_stop:
        stopped = f'read -r katib_word < {marker} && [ "$katib_word" = {EARLY_STOPPED} ]'
        text += f' || {{ katib_status=$?; {{ {stopped}; }} 2>/dev/null || exit "$katib_status"; }}'
    return ["sh", "-c", f"{text} && {COMPLETING}{marker}"]
