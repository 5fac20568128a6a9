"""The web page of a tuning service.

Belongs here: pages (Jinja2 templates), their styles and scripts, the data for scripts, the live stream.
Does not belong here: the content of figures (`katib.figures`), verbs (`katib.service.tuning`), access rights
(`katib.doors.rest`).

`ui_routes` lists all routes. A page is complete without its scripts except for figures and live changes: a template
shows a view (`views`), a pure function of objects. Scripts are ES modules without a build; everything that a page needs
comes from this server.
"""

from __future__ import annotations

from collections.abc import Callable

from katib.doors.rest.streams import Closing
from katib.doors.rest.visits import PageRouter
from katib.doors.ui.about_pages import about_pages
from katib.doors.ui.assets import asset_routes
from katib.doors.ui.compare_pages import compare_pages
from katib.doors.ui.entry import entry_routes, show_problem
from katib.doors.ui.experiment_list_routes import experiment_list_routes
from katib.doors.ui.experiment_pages import experiment_pages
from katib.doors.ui.figure_routes import figure_routes
from katib.doors.ui.katib_paths import katib_paths
from katib.doors.ui.live import live_routes
from katib.doors.ui.new_pages import new_pages
from katib.doors.ui.shared_stream import shared_stream_routes
from katib.doors.ui.tables import Tables
from katib.doors.ui.trial_pages import trial_data_routes, trial_pages
from katib.doors.ui.trial_table_routes import trial_table_routes


def ui_routes(closing: Closing, optuna_line: Callable[[], str] = str) -> PageRouter:
    """Return the routes of the pages, of the data for their scripts, and of their files.

    Args:
        closing: Ends all streams when the server is about to stop.
        optuna_line: Returns the expression that connects Optuna to the server; empty if no client can connect.
    """
    tables = Tables(closing)
    router = PageRouter(show_problem)
    parts = (
        asset_routes(),
        entry_routes(),
        katib_paths(),
        experiment_list_routes(closing, optuna_line),
        experiment_pages(tables),
        trial_table_routes(tables),
        figure_routes(tables),
        live_routes(tables, closing),
        shared_stream_routes(closing),
        new_pages(optuna_line),
        about_pages(),
        trial_pages(),
        trial_data_routes(tables, closing),
        compare_pages(tables),
    )
    for part in parts:
        router.routes.extend(part.routes)  # including them would build each again
    return router
