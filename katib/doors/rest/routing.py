"""Parts of routes: the service that answers, and the names in their paths."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, FastAPI, Path, Request
from fastapi.routing import APIRoute

from katib.doors.rest.guard import user_of
from katib.doors.rest.sessions import Sessions
from katib.errors import InternalError
from katib.service.tuning import service
from katib.service.tuning.service import LONGEST_NAME, TuningService
from katib.service.tuning.users import Gateway

OBJECT_NAME = service.OBJECT_NAME.replace(r"\Z", "$")
"""The form of an object's name, for the framework, to which `$` is the very end."""
Namespace = Annotated[str, Path(description="Namespace of the object.", pattern=OBJECT_NAME, max_length=LONGEST_NAME)]
Name = Annotated[str, Path(description="Name of the object.", pattern=OBJECT_NAME, max_length=LONGEST_NAME)]


def name_of(route: APIRoute) -> str:
    return route.name


def answer_with(app: FastAPI, service: TuningService | Gateway) -> None:
    """Set the service that answers the routes of an application, or the services of a gateway's users."""
    app.state.service = service


def let_in_by(app: FastAPI, sessions: Sessions | None) -> None:
    """Set the sessions by which an application lets browsers in; None: signing in is not required."""
    app.state.sessions = sessions


def sessions_of(request: Request) -> Sessions | None:
    """Return the sessions of browsers; None if signing in is not required."""
    return cast("Sessions | None", request.app.state.sessions)


def service_of(request: Request) -> TuningService:
    """Return the service that answers a request, that of its user behind a gateway."""
    service = request.app.state.service
    if not isinstance(service, Gateway):
        return cast("TuningService", service)
    user = user_of(request.scope)
    if user is None:
        raise InternalError(f"{request.url.path} was to be answered without a user")
    return service.service_of(user)


async def _service(request: Request) -> TuningService:
    return service_of(request)


Service = Annotated[TuningService, Depends(_service)]
"""As the type of a route's parameter: the service that answers this request."""
