"""Every route of REST and of the page, those that are added later too, for what has to hold for all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from starlette.routing import Route

from katib.doors.rest.app import create_app
from katib.doors.rest.visits import UI_PREFIX
from katib.doors.ui import ui_routes
from tests.support.tuning import MemoryTuningService

PARAMETERS = {"figure": "history", "form": "csv"}
"""What stands for a part of a path. A route with another one needs an entry."""


@cache
def rest_paths() -> dict[str, dict[str, Any]]:
    """Return the paths of REST, and by method what OpenAPI says of them, from the golden file, which has a test."""
    return dict(json.loads((Path(__file__).parents[1] / "golden" / "openapi.json").read_text())["paths"])


@cache
def page_paths() -> Sequence[str]:
    """Return what answers GET requests below the page, but its files."""
    app = create_app(MemoryTuningService(), ui=ui_routes)
    routes = [route for route in app.routes if isinstance(route, Route) and "GET" in (route.methods or ())]
    found = {route.path for route in routes if route.path.startswith(f"{UI_PREFIX}/")}
    return sorted(path for path in found if not path.startswith(f"{UI_PREFIX}/static/"))


def address(path: str, namespace: str, experiment: str = "demo", trial: str = "demo-0000") -> str:
    """Return the address of a route for an experiment, or for a trial where the route is one of trials."""
    name = trial if re.search(r"/trials/({namespace}/)?{name}", path) else experiment
    filled = path.format_map({**PARAMETERS, "namespace": namespace, "name": name})
    return f"{filled}?timeoutSeconds=1" if path.endswith("/changes") else filled
