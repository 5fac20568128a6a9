"""The page for people: what a browser shows of a tuning service.

Belongs here: pages (Jinja2 templates), their styles and scripts, the data that scripts ask for, the live stream.
Does not belong here: what a figure shows (`katib.figures`), what can be asked (`katib.tuning`), by whom (`katib.rest`).

`routes` is the list of everything that answers. A page is complete without its scripts but for figures and live
changes: what a template shows comes from a view (`views`), a pure function of objects. Scripts are ES modules without a
build; everything that a page needs comes from this server.
"""

from katib.ui.routes import ui_routes

__all__ = ["ui_routes"]
