"""The command line.

Belongs here: arguments, output, exit codes.
Does not belong here: decisions. A command makes a call or two of TuningService and prints the answer.

Start-up time is a feature: modules import only cheap modules at their top, and `app` loads a command's module on call.
"""

from __future__ import annotations

from katib.doors.cli.app import main
