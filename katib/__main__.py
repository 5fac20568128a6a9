"""`python -m katib`: the command line of this very Python."""

from __future__ import annotations

import sys

from katib.doors.cli import main

sys.exit(main())
