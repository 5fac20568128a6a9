"""The data directory of one engine: one database, and what trials leave behind."""

from __future__ import annotations

import os
from pathlib import Path

from katib.errors import ForbiddenError, TerminalError
from katib.model.files.directories import has_room, make_private
from katib.places.machine.processes.remains import RECORD_FILE, may_have_programs

_LEAST_BYTES = 1 << 16


class Layout:
    """Where things lie below the data directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / "katib.db"
        """The SQLite file: objects, metrics, events."""
        self.trials = root / "trials"
        """Files of trials: `<namespace>/<trial>/<pod>/`."""
        self.checkpoints = root / "checkpoints"
        """Checkpoints of trials that start from each other's: `<namespace>/<experiment>/<trial>/`."""
        self.services = root / "services"
        """What suggestion services print."""
        self.run = root / "run"
        """Notes that outlive a crash: which processes belong to us."""
        self.reserve = self.run / "reserve"
        """Room for what has to be stored when the disk is full."""
        self.slurm = self.run / "slurm"
        """Notes of what runs in Slurm."""
        self.python = self.run / "python"
        """Links to the Python that runs the engine, for trials."""

    def trial(self, namespace: str, name: str) -> Path:
        return self.trials / namespace / name

    def has_database(self) -> bool:
        """Return whether an engine has worked here.

        Raises:
            ForbiddenError: The directory belongs to another account, which keeps it for itself.
        """
        try:
            return self.database.is_file()
        except PermissionError as error:
            remedy = "use another --data-dir, or the account that it belongs to"
            raise ForbiddenError(f"{self.root}: permission denied; {remedy}") from error

    def has_programs(self) -> bool:
        """Return whether programs of trials may run, here or in Slurm: no engine has to work for that."""
        return may_have_programs(self.run / RECORD_FILE) or any(self.slurm.glob("*/"))

    def is_full(self) -> bool:
        """Return whether the disk has no room for what a transaction writes."""
        return not has_room(self.root, _LEAST_BYTES)

    def create(self) -> None:
        """Make the directories; what is in them may hold secrets of the user's environment, so only for the user.

        Raises:
            TerminalError: They cannot be made or written to.
        """
        for directory in (self.root, self.trials, self.checkpoints, self.services, self.run):
            try:
                if directory == self.root:
                    make_private(directory)
                else:
                    directory.mkdir(exist_ok=True, mode=0o700)
                writable = os.access(directory, os.W_OK | os.X_OK)
            except OSError as error:
                cause = (error.strerror or str(error)).lower()
                raise TerminalError(f"{directory}: cannot be made: {cause}; use another --data-dir") from error
            if not writable:
                raise TerminalError(f"{directory}: not writable; fix its permissions or use another --data-dir")
