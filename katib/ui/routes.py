"""Everything that answers a browser."""

from __future__ import annotations

from fastapi import APIRouter

from katib.rest.streams import Closing
from katib.ui.about_pages import about_pages
from katib.ui.assets import asset_routes
from katib.ui.experiment_list_routes import experiment_list_routes
from katib.ui.experiment_pages import experiment_pages
from katib.ui.figure_routes import figure_routes
from katib.ui.live import live_routes
from katib.ui.new_pages import new_pages
from katib.ui.tables import Tables
from katib.ui.trial_table_routes import trial_table_routes


def ui_routes(closing: Closing) -> APIRouter:
    """Return the routes of the pages, of what their scripts ask for, and of what these are made of."""
    tables = Tables(closing)
    router = APIRouter()
    parts = (
        asset_routes(),
        experiment_list_routes(closing),
        experiment_pages(tables),
        trial_table_routes(tables),
        figure_routes(tables),
        live_routes(tables, closing),
        new_pages(),
        about_pages(),
    )
    for part in parts:
        router.include_router(part)
    return router
