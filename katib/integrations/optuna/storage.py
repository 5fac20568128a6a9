"""Optuna's client of a storage, connected to the server of a data directory, with heartbeats."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import optuna
from optuna.storages import GrpcStorageProxy
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.trial import FrozenTrial, TrialState

from katib.doors.optuna_storage.server import PORT, SOCKET, socket_path
from katib.doors.rest.client import HttpTuningService
from katib.errors import Backoff, KatibError, TerminalError, UnavailableError, code_of
from katib.service.drafting import python_words

StaleTrialCallback = Callable[["optuna.Study", FrozenTrial], None]

_HEARTBEAT = "katib:heartbeat"
"""System attribute of a trial: time of the last heartbeat."""

_GRACE_FACTOR = 2
"""As in Optuna's RDBStorage: a trial is stale after two intervals by default."""


_CONNECT_SECONDS = 5.0
"""Timeout of a first attempt: connecting takes milliseconds, and gRPC waits before it retries an absent server."""

_PATIENCE_SECONDS = 120
"""Timeout of a call while the server is unavailable: long enough for its restart."""

_LONGEST_PAUSE_MS = 1000
"""Maximum pause between two attempts to connect; gRPC's default grows to minutes."""

_RETRIES = Backoff(0.05, _LONGEST_PAUSE_MS / 1000)

_ONCE_ONLY = frozenset({"CreateNewStudy", "DeleteStudy", "CreateNewTrial", "SetTrialStateValues"})
"""Calls that gRPC does not repeat if the server ends before it answers: the first may have taken effect. All others
read, or set a value."""


class Storage(GrpcStorageProxy, BaseHeartbeat):
    """Optuna's own client, extended by heartbeats. Use `storage`."""

    def __init__(
        self, directory: Path, interval: int | None, grace_seconds: float | None, callback: StaleTrialCallback | None
    ) -> None:
        self._interval = interval
        self._grace = timedelta(seconds=grace_seconds or _GRACE_FACTOR * (interval or 0))
        self._callback = callback
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            super().__init__(host=f"unix:{directory}/{SOCKET}", port=PORT)

    def _setup(self) -> None:
        super()._setup()  # which also reports imports that are missing
        self._channel.close()
        self._channel = grpc.insecure_channel(
            f"{self._host}:{self._port}",
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_reconnect_backoff_ms", _LONGEST_PAUSE_MS),
                ("grpc.service_config", json.dumps(_patience())),
            ],
        )
        self._stub = type(self._stub)(self._channel)
        self._cache = type(self._cache)(self._stub)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Set the state of a trial and its values; the end of a trial is repeated if its answer is lost."""
        try:
            return super().set_trial_state_values(trial_id, state, values)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or not state.is_finished():
                raise
        try:
            return super().set_trial_state_values(trial_id, state, values)
        except optuna.exceptions.UpdateFinishedTrialError:
            stored = self.get_trial(trial_id)
            if (stored.state, stored.values) != (state, None if values is None else list(values)):
                raise
            return True

    def record_heartbeat(self, trial_id: int) -> None:
        """Record a heartbeat; a trial that has ended needs none."""
        try:
            self.set_trial_system_attr(trial_id, _HEARTBEAT, datetime.now(UTC).isoformat())
        except optuna.exceptions.UpdateFinishedTrialError:
            return

    def _get_stale_trial_ids(self, study_id: int) -> list[int]:
        last = datetime.now(UTC) - self._grace
        running = self.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,))
        beats = ((trial, trial.system_attrs.get(_HEARTBEAT)) for trial in running)
        return [trial._trial_id for trial, beat in beats if beat and datetime.fromisoformat(beat) < last]  # noqa: SLF001 - no other way

    def get_heartbeat_interval(self) -> int | None:
        """Return the heartbeat interval in seconds; None: no heartbeats."""
        return self._interval

    def get_heartbeat_stale_trial_callback(self) -> StaleTrialCallback | None:
        """Return the callback for a study and a trial that failed for lack of heartbeats."""
        return self._callback

    def get_failed_trial_callback(self) -> StaleTrialCallback | None:
        """Return the same, by its name in Optuna 4."""
        return self._callback


def _patience() -> dict[str, Any]:
    """Return gRPC's retry policy for a storage's calls while the server is unavailable, as a service configuration."""
    from optuna.storages._grpc.auto_generated import api_pb2

    service = api_pb2.DESCRIPTOR.services_by_name["StorageService"]
    waits = {"waitForReady": True, "timeout": f"{_PATIENCE_SECONDS}s"}
    again = {
        "maxAttempts": 5,
        "initialBackoff": "0.1s",
        "maxBackoff": "1s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    repeated = [name for name in service.methods_by_name if name not in _ONCE_ONLY]
    names = [{"service": service.full_name, "method": name} for name in repeated]
    return {"methodConfig": [{"name": [{}], **waits}, {"name": names, **waits, "retryPolicy": again}]}


class RemoteStorage(Storage):
    """The same by HTTP, with the token of a server and the TLS of its address. Use `storage`."""

    def __init__(
        self,
        server: str,
        token: str | None,
        interval: int | None,
        grace_seconds: float | None,
        callback: StaleTrialCallback | None,
    ) -> None:
        self._server = server
        self._token = token
        super().__init__(Path(), interval, grace_seconds, callback)

    def _setup(self) -> None:
        from optuna.storages._grpc.client import GrpcClientCache

        self._channel = HttpTuningService(self._server, self._token)  # closed by `close`
        self._stub = _HttpStub(self._channel)  # type: ignore[assignment]  # it has the same calls
        self._cache = GrpcClientCache(self._stub)

    def wait_server_ready(self, timeout: float | None = None) -> None:  # noqa: ARG002 - Optuna's; a request has its own
        """Return when the server answers.

        Raises:
            UnavailableError: No server answers there.
            ForbiddenError: It does not accept the token.
        """
        self._channel.exchange("optuna/GetAllStudies", b"")


class _HttpStub:
    """A stub with a method for each call, like that of Optuna's client."""

    def __init__(self, http: HttpTuningService) -> None:
        self._http = http

    def __getattr__(self, call: str) -> Callable[[Any], Any]:
        from optuna.storages._grpc.auto_generated import api_pb2

        reply = getattr(api_pb2, f"{call}Reply")

        def send(request: Any) -> Any:
            deadline, failures = time.monotonic() + _PATIENCE_SECONDS, 0
            while True:
                try:
                    return reply.FromString(self._http.exchange(f"optuna/{call}", request.SerializeToString()))
                except KatibError as error:
                    failures += 1
                    pause = _RETRIES.pause_seconds(failures)
                    is_away = isinstance(error, UnavailableError) and call not in _ONCE_ONLY
                    if not is_away or time.monotonic() + pause > deadline:
                        raise _RefusedError(error) from error
                time.sleep(pause)

        return send


class _RefusedError(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """A call that the server refused, in the form that Optuna's client expects."""

    def __init__(self, error: KatibError) -> None:
        super().__init__(str(error))
        self._code = grpc.StatusCode[code_of(error).grpc_code]

    def code(self) -> grpc.StatusCode:
        return self._code


@python_words()
def storage(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    server: str | None = None,
    token: str | None = None,
    heartbeat_interval: int | None = None,
    grace_period: float | None = None,
    stale_trial_callback: StaleTrialCallback | None = None,
) -> Storage:
    """Return the storage of the server of a data directory, for `optuna.create_study` and others.

    Args:
        data_dir: The data directory; by default $KATIB_HOME, else `.katib`.
        server: The URL of another server instead, such as `https://tuning.example.org`; by default $KATIB_SERVER.
        token: The token for that server; by default $KATIB_TOKEN, else the one kept by a server of this account.
        heartbeat_interval: Seconds between two heartbeats of a running trial. With heartbeats, a trial whose program
            has died fails when another program of the study starts its next trial.
        grace_period: Seconds without a heartbeat after which a program counts as dead; by default twice the interval.
        stale_trial_callback: Called with such a trial, such as `optuna.storages.RetryHeartbeatStaleTrialCallback()`,
            which retries it.

    Raises:
        InvalidError: The path of the directory is too long for a socket.
        UnavailableError: No server answers there.
        TerminalError: Optuna's client is incompatible with the installed protobuf.
    """
    options = heartbeat_interval, grace_period, stale_trial_callback
    server = server or (os.environ.get("KATIB_SERVER") if data_dir is None else None)
    try:
        made = (
            _local(Path(data_dir or os.environ.get("KATIB_HOME") or ".katib"), *options)
            if server is None
            else _remote(server, token or os.environ.get("KATIB_TOKEN"), *options)
        )
    except ImportError as error:
        remedy = "run pip install --upgrade grpcio 'protobuf>=5.28.1'"
        raise TerminalError(f"Optuna's client of a storage cannot be imported ({error}); {remedy}") from None
    return made


def _local(directory: Path, *options: Any) -> Storage:
    """Return the storage at the socket of a data directory."""
    absent = UnavailableError(f"{directory}: no server answers there; start `katib serve --data-dir {directory}`")
    if not socket_path(directory).is_socket():
        raise absent
    made = Storage(directory.absolute(), *options)
    try:
        made.wait_server_ready(_CONNECT_SECONDS)
    except ConnectionError as error:  # the socket of a killed server
        raise absent from error
    return made


def _remote(server: str, token: str | None, *options: Any) -> RemoteStorage:
    made = RemoteStorage(server, token, *options)
    made.wait_server_ready()
    return made
