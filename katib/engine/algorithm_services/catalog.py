"""All algorithms that this installation offers: our own and those a user plugged in."""

from __future__ import annotations

from collections.abc import Sequence

from katib.model.algorithms import AlgorithmInfo
from suggestion_services.algorithms import ENTRIES


class Catalog:
    """Fits `katib.model.algorithms.AlgorithmCatalog`.

    Args:
        plugged_in: The user's; one of the same name and kind replaces ours.
    """

    def __init__(self, plugged_in: Sequence[AlgorithmInfo] = ()) -> None:
        infos = [*(entry.info for entry in ENTRIES), *plugged_in]
        self._infos = {(info.name, info.early_stopping): info for info in infos}

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        """Return an algorithm by name, None when it is not offered."""
        return self._infos.get((name, early_stopping))

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return every algorithm, suggestion algorithms first."""
        return sorted(self._infos.values(), key=lambda info: info.early_stopping)
