"""All algorithms of this installation: the built-in ones and those that a user plugged in."""

from __future__ import annotations

from collections.abc import Sequence

from katib.model.algorithms import AlgorithmInfo
from suggestion_services.algorithms import ENTRIES


class Catalog:
    """Algorithms of this installation. Implements `katib.model.algorithms.AlgorithmCatalog`.

    Args:
        plugged_in: The user's algorithms; one with the name and kind of a built-in one replaces it.
    """

    def __init__(self, plugged_in: Sequence[AlgorithmInfo] = ()) -> None:
        infos = [*(entry.info for entry in ENTRIES), *plugged_in]
        self._infos = {(info.name, info.early_stopping): info for info in infos}

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        """Return an algorithm by name, None if it is not offered."""
        return self._infos.get((name, early_stopping))

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return all algorithms, suggestion algorithms first."""
        return sorted(self._infos.values(), key=lambda info: info.early_stopping)
