"""All algorithms of this installation: the built-in ones and those that a user plugged in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan
from katib.model.algorithms import AlgorithmInfo
from katib.model.metrics import RetentionPolicy
from suggestion_services.algorithms import ENTRIES


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """Settings of an engine on one machine: the defaults, or those of a configuration file (`config.py`).

    Attributes:
        infos: Algorithms that a user plugged in.
        containers: Runtime for the images of trials; empty for the command line's.
        log_max_bytes: Limit of one file of a container's output.
        log_max_files: Number of files of a container's output kept.
        retention: How long the logs of completed trials are kept; None for ever.
    """

    infos: tuple[AlgorithmInfo, ...] = ()
    plans: Mapping[ServiceId, ServicePlan] = field(default_factory=dict)
    containers: str = ""
    log_max_bytes: int = 10 << 20
    log_max_files: int = 5
    retention: RetentionPolicy | None = None


class Catalog:
    """Algorithms of this installation. Implements `katib.model.algorithms.AlgorithmCatalog`.

    Args:
        plugged_in: The user's algorithms; one with the name and kind of a built-in one replaces it.
    """

    def __init__(self, plugged_in: Sequence[AlgorithmInfo] = ()) -> None:
        self._plugged_in = {(info.name, info.early_stopping): info for info in plugged_in}
        self._built_in = {(entry.listed.name, entry.listed.early_stopping): entry for entry in ENTRIES}

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        key = name, early_stopping
        if key in self._plugged_in or key not in self._built_in:
            return self._plugged_in.get(key)
        return self._built_in[key].info

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return all algorithms, suggestion algorithms first."""
        infos = {key: entry.info for key, entry in self._built_in.items()} | self._plugged_in
        return sorted(infos.values(), key=lambda info: info.early_stopping)
