"""The data directory of one engine: one database, and what trials leave behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things lie below the data directory.

    Attributes:
        root: The data directory.
    """

    root: Path

    @property
    def database(self) -> Path:
        """The SQLite file: objects, metrics, events."""
        return self.root / "katib.db"

    @property
    def trials(self) -> Path:
        """Files of trials: `<namespace>/<trial>/<pod>/`."""
        return self.root / "trials"

    @property
    def services(self) -> Path:
        """What suggestion services print."""
        return self.root / "services"

    @property
    def run(self) -> Path:
        """Notes that outlive a crash: which processes belong to us."""
        return self.root / "run"

    def trial(self, namespace: str, name: str) -> Path:
        """Return the directory of one trial."""
        return self.trials / namespace / name

    def create(self) -> None:
        """Make the directories; what is in them may hold secrets of the user's environment, so only for the user."""
        for directory in (self.root, self.trials, self.services, self.run):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
