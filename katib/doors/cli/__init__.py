"""The command line.

Belongs here: arguments, what is printed, exit codes.
Does not belong here: anything that decides. A command is a call or two of TuningService and the printing of the answer.

Start-up time is a feature: a module here imports at its top only what is cheap, and `app` loads a command's module when
the command is called.
"""

from __future__ import annotations

from katib.doors.cli.app import main

__all__ = ["main"]
