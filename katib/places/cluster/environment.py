"""Startup of a cluster's processes: addresses and namespaces from Katib's variables, and waiting for the API server.

A process that exited instead of waiting would be restarted by the kubelet, with pauses that grow to minutes. Nothing
here needs a client library.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from katib.errors import Backoff, KatibError, UnavailableError

T = TypeVar("T")

DEFAULT_CORE_NAMESPACE = "kubeflow"
BACKOFF = Backoff(0.5, 5.0, jitter=0.5)

_log = logging.getLogger(__name__)


def core_namespace(environment: Mapping[str, str] = os.environ) -> str:
    return environment.get("KATIB_CORE_NAMESPACE") or DEFAULT_CORE_NAMESPACE


def db_manager_address(environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of the DB manager, as pods of any namespace reach it."""
    host = environment.get("KATIB_DB_MANAGER_SERVICE_IP") or "katib-db-manager"
    namespace = environment.get("KATIB_DB_MANAGER_SERVICE_NAMESPACE", core_namespace(environment))
    port = environment.get("KATIB_DB_MANAGER_SERVICE_PORT") or "6789"
    return f"{host}.{namespace}:{port}" if namespace else f"{host}:{port}"


def status_address(environment: Mapping[str, str] = os.environ) -> str:
    """Return the address for the status of Kubeflow Trainer; empty if the DB manager does not receive it."""
    port = environment.get("KATIB_DB_MANAGER_STATUS_PORT")
    return f"{db_manager_address(environment).rpartition(':')[0]}:{port}" if port else ""


def await_answer(
    ask: Callable[[], T],
    pause: Callable[[float], bool],
    outages: tuple[type[KatibError], ...] = (UnavailableError,),
) -> T | None:
    """Return the first answer; None if a pause was ended before there was one.

    Args:
        ask: Makes one attempt.
        pause: Waits for the given seconds; returns whether to give up, as `threading.Event.wait` does.
        outages: Errors of `ask` that are retried.
    """
    failures, reported = 0, ""
    while True:
        try:
            answer = ask()
        except outages as error:
            failures += 1
            if str(error) != reported:
                reported = str(error)
                _log.warning("Waiting for the API server: %s", reported)
        else:
            if failures:
                _log.info("The API server answers")
            return answer
        if pause(BACKOFF.pause_seconds(failures, random.random())):
            return None
