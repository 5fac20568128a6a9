"""The algorithms of a cluster as far as a user may know them."""

from __future__ import annotations

from collections.abc import Sequence

from katib.api.algorithms import AlgorithmCatalog, AlgorithmInfo
from katib.api.configuration import read_configuration
from katib.cluster.configuration.models import KatibConfig
from katib.cluster.services.catalog import ClusterCatalog
from katib.cluster.services.config_map import CONFIG_MAP_KEY, CONFIG_MAP_NAME
from katib.cluster.services.kinds import CONFIG_MAP
from katib.errors import KatibError
from katib.runtime.objects import Key, ObjectStore
from katib.services.catalog import Catalog


class UsersCatalog:
    """Fits `katib.api.algorithms.AlgorithmCatalog`.

    Where the KatibConfig may not be read, any name is taken to be offered, and the cluster's own admission decides.

    Args:
        store: Has the ConfigMap of the KatibConfig.
        core_namespace: Where it is.
    """

    def __init__(self, store: ObjectStore, core_namespace: str) -> None:
        self._store = store
        self._key = Key(core_namespace, CONFIG_MAP_NAME)
        self._ours = Catalog()

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        """Return an algorithm by name, None when it is not offered."""
        offered = self._offered()
        if offered is not None:
            return offered.find(name, early_stopping=early_stopping)
        known = self._ours.find(name, early_stopping=early_stopping)
        return known or AlgorithmInfo(name, early_stopping=early_stopping)

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return every algorithm that is known to be offered; else those of the default configuration."""
        return (self._offered() or self._ours).all()

    def _offered(self) -> AlgorithmCatalog | None:
        try:
            config = self._config()
        except KatibError:
            return None
        return ClusterCatalog(lambda: config)

    def _config(self) -> KatibConfig:
        data = self._store.get(CONFIG_MAP, self._key).get("data") or {}
        return read_configuration(KatibConfig, str(data.get(CONFIG_MAP_KEY, "")), f"ConfigMap {self._key}")
