"""What every route of a page needs: who looks, and the table of the experiment."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated

from fastapi import Depends, Request

from katib.rest.guard import user_of
from katib.tuning.service import TuningService
from katib.ui.tables import LiveTable, Tables


def viewer(request: Request) -> Hashable:
    """Return who looks, as the key of what is kept for them; None where there is one user."""
    return user_of(request.scope)


Viewer = Annotated[Hashable, Depends(viewer)]
"""As the type of a route's parameter: who looks."""


def table_for(tables: Tables, service: TuningService, user: Hashable, namespace: str, name: str) -> LiveTable:
    """Return the table of an experiment that this user may read.

    The experiment is read first, with the user's rights: a table that was filled before they were taken away is not
    shown any more.

    Raises:
        KatibError: There is no such experiment, or the user may not read it.
    """
    service.get("Experiment", namespace, name)
    return tables.table(service, user, namespace, name)
