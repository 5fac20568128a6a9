"""What lets Kubeflow's `report_metrics` work in a trial on one machine.

That function reads its namespace from a file that pods have, calls the address of an installation in a cluster unless
it is given another, and sends no token. `DIRECTORY` is put before the `PYTHONPATH` of trials that push: Python runs the
module `sitecustomize` there at its start, which adapts the function when a program imports it, and does nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DIRECTORY = Path(__file__).parent


def python_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that has Python programs started with this environment find `DIRECTORY` first."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(DIRECTORY), environment.get("PYTHONPATH"))))}
