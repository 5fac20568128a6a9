"""Optuna's client of a storage, connected to the server of a data directory, with heartbeats."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import optuna
from optuna.storages import GrpcStorageProxy
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.trial import FrozenTrial, TrialState

from katib.errors import TerminalError, UnavailableError
from katib.optuna_storage.server import PORT, SOCKET, socket_path

StaleTrialCallback = Callable[["optuna.Study", FrozenTrial], None]

_HEARTBEAT = "katib:heartbeat"
"""System attribute of a trial: when its program gave its last sign of life."""

_GRACE_FACTOR = 2
"""As in Optuna's RDBStorage: a trial is stale after two intervals, where nothing else is said."""


_CONNECT_SECONDS = 5.0
"""A connection takes milliseconds; gRPC waits before it tries again where there was no server just before."""


class Storage(GrpcStorageProxy, BaseHeartbeat):
    """Optuna's own client, with heartbeats, which it does not have. Use `storage`."""

    def __init__(
        self, directory: Path, interval: int | None, grace_seconds: float | None, callback: StaleTrialCallback | None
    ) -> None:
        self._interval = interval
        self._grace = timedelta(seconds=grace_seconds or _GRACE_FACTOR * (interval or 0))
        self._callback = callback
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            super().__init__(host=f"unix:{directory}/{SOCKET}", port=PORT)

    def record_heartbeat(self, trial_id: int) -> None:
        """Note a sign of life; a trial that has ended needs none."""
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
        """Return the seconds between two signs of life; None: there are none."""
        return self._interval

    def get_heartbeat_stale_trial_callback(self) -> StaleTrialCallback | None:
        """Return what is called with a study and a trial that has failed for lack of signs of life."""
        return self._callback

    def get_failed_trial_callback(self) -> StaleTrialCallback | None:
        """Return the same, by the name that Optuna 4 knows."""
        return self._callback


def storage(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    heartbeat_interval: int | None = None,
    grace_period: float | None = None,
    stale_trial_callback: StaleTrialCallback | None = None,
) -> Storage:
    """Return the storage of the server that runs in a data directory, for `optuna.create_study` and others.

    Args:
        data_dir: The data directory; by default $KATIB_HOME, else `.katib`.
        heartbeat_interval: Seconds between two signs of life of a trial that runs. With them, a trial whose program is
            gone fails when another program of the study starts its next trial.
        grace_period: Seconds without a sign after which its program counts as gone; twice the interval by default.
        stale_trial_callback: Called with such a trial, as `optuna.storages.RetryHeartbeatStaleTrialCallback()`, which
            has it run again.

    Raises:
        InvalidError: The path of the directory is too long for a socket.
        UnavailableError: No server answers there.
        TerminalError: Optuna's client cannot be used with the protobuf that is installed.
    """
    directory = Path(data_dir or os.environ.get("KATIB_HOME") or ".katib")
    absent = UnavailableError(f"{directory}: no server answers there; start `katib serve --data-dir {directory}`")
    if not socket_path(directory).is_socket():
        raise absent
    try:
        made = Storage(directory.absolute(), heartbeat_interval, grace_period, stale_trial_callback)
        made.wait_server_ready(_CONNECT_SECONDS)
    except ImportError as error:
        remedy = "run pip install --upgrade grpcio 'protobuf>=5.28.1'"
        raise TerminalError(f"Optuna's client of a storage cannot be imported ({error}); {remedy}") from error
    except ConnectionError as error:  # the socket of a server that was killed
        raise absent from error
    return made


__all__ = ["Storage", "storage"]
