"""Everything that answers a browser."""

from __future__ import annotations

from katib.rest.streams import Closing
from katib.rest.visits import PageRouter
from katib.ui.assets import asset_routes
from katib.ui.entry import entry_routes, show_problem
from katib.ui.experiment_pages import experiment_pages
from katib.ui.figure_routes import figure_routes
from katib.ui.katib_paths import katib_paths
from katib.ui.live import live_routes
from katib.ui.tables import Tables


def ui_routes(closing: Closing) -> PageRouter:
    """Return the routes of the pages, of what their scripts ask for, and of what these are made of."""
    tables = Tables(closing)
    router = PageRouter(show_problem)
    for part in (
        asset_routes(),
        entry_routes(),
        katib_paths(),
        experiment_pages(),
        figure_routes(tables),
        live_routes(tables, closing),
    ):
        router.include_router(part)
    return router
