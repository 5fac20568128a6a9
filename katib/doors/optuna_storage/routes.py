"""The same calls over HTTP, with the server's token and TLS: a message in, a message out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from katib.errors import NotFoundError, invalid

if TYPE_CHECKING:
    from katib.service.tuning.chosen_trials import ChosenTrials

MEDIA_TYPE = "application/x-protobuf"


def storage_routes(trials: ChosenTrials) -> APIRouter:
    """Return the route of `katib.integrations.optuna.storage`; the first request imports protobuf."""
    router = APIRouter()

    def answer(call: str, body: bytes) -> bytes:
        from google.protobuf.message import DecodeError

        from katib.doors.optuna_storage.messages import CALLS
        from katib.doors.optuna_storage.service import StorageService

        if call not in CALLS:
            raise NotFoundError(f"Optuna's storage protocol has no call {call}")
        try:
            request = CALLS[call][0].FromString(body)
        except DecodeError as error:
            raise invalid("body", f"it is not a request of {call}", "use Optuna's client", "optuna-body") from error
        return StorageService(trials).answer(call, request)

    @router.post("/api/v1/optuna/{call}")
    async def call_storage(call: str, request: Request) -> Response:
        return Response(await run_in_threadpool(answer, call, await request.body()), media_type=MEDIA_TYPE)

    return router
