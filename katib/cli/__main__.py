"""`python -m katib.cli`: the command line of this very Python."""

from __future__ import annotations

import sys

from katib.cli import main

sys.exit(main())
