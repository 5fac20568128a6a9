"""Delivery of the sidecar's results: to the DB manager and the early stopping service."""

from __future__ import annotations

import logging
from typing import Any

from katib.errors import InternalError, UnavailableError
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.connection import LazyChannel
from katib.wire.rpc.credentials import NO_CREDENTIALS, DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient

_CALL_SECONDS = 20.0
_SET_TRIAL_STATUS = "/api.v1.beta1.EarlyStopping/SetTrialStatus"

KEPT = "readings are kept and sent again"
"""Logged while the DB manager does not accept readings."""

_logger = logging.getLogger(__name__)


class DbManagerLog(DbManagerClient):
    """A client of the DB manager for a reporter that retries indefinitely.

    Katib's DB manager reports any database problem as UNKNOWN, so this status counts as transient too. After a failure
    the next call reconnects, so that it does not wait for a dead connection again.

    Attributes:
        problem: The reason why it does not answer now; empty while it does.
    """

    def __init__(self, address: str, credentials: DbManagerCredentials = NO_CREDENTIALS) -> None:
        super().__init__(address, timeout_seconds=_CALL_SECONDS, credentials=credentials)
        self.problem = ""

    def _call(self, method: str, request: Any, timeout_seconds: float | None = None) -> Any:
        try:
            answer = super()._call(method, request, timeout_seconds)
        except (UnavailableError, InternalError) as error:
            self._connection.drop()
            if not self.problem:
                _logger.warning("%s: %s", KEPT, error)
            self.problem = str(error)
            raise UnavailableError(self.problem) from error
        if self.problem:
            _logger.warning("the DB manager takes readings again")
        self.problem = ""
        return answer


def set_trial_status(address: str, trial_name: str) -> None:
    """Notify the early stopping service that a trial was stopped.

    Raises:
        UnavailableError: The service is temporarily unavailable.
        KatibError: The service refused the request.
    """
    connection = LazyChannel(address, peer="early stopping service", timeout_seconds=_CALL_SECONDS)
    try:
        request = pb.SetTrialStatusRequest(trial_name=trial_name).SerializeToString()
        connection.call(_SET_TRIAL_STATUS, request, lambda _reply, _metadata: None).result()
    except InternalError as error:
        raise UnavailableError(str(error)) from error
    finally:
        connection.close()
