"""The algorithms of a cluster: those that its KatibConfig has a service for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from katib.api.algorithms import AlgorithmInfo
from katib.cluster.configuration.models import KatibConfig
from suggestion_services.algorithms import ENTRIES

_OURS = {(entry.info.name, entry.info.early_stopping): entry.info for entry in ENTRIES}


class ClusterCatalog:
    """Fits `katib.api.algorithms.AlgorithmCatalog`.

    What is known of one of our algorithms holds whatever image serves it, since all accept the settings of Katib. Of
    others nothing is known: their service alone checks settings, and gets the trials.

    Args:
        config: Returns the KatibConfig in force.
    """

    def __init__(self, config: Callable[[], KatibConfig]) -> None:
        self._config = config

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        """Return an algorithm by name, None when it is not offered."""
        config = self._config()
        entry = config.early_stopping(name) if early_stopping else config.suggestion(name)
        return None if entry is None else _info(name, early_stopping=early_stopping)

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return every algorithm, suggestion algorithms first."""
        runtime = self._config().runtime
        searching = dict.fromkeys(entry.algorithm_name for entry in runtime.suggestions)
        stopping = dict.fromkeys(entry.algorithm_name for entry in runtime.early_stoppings)
        return [
            *(_info(name, early_stopping=False) for name in searching),
            *(_info(name, early_stopping=True) for name in stopping),
        ]


def _info(name: str, *, early_stopping: bool) -> AlgorithmInfo:
    known = _OURS.get((name, early_stopping))
    return known or AlgorithmInfo(name, early_stopping=early_stopping)
