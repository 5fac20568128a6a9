"""The ConfigMap `trial-templates` of the manifests, on one machine: to read, behind a user's own of its name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from katib.runtime.objects import Key, Object

SHIPPED: Final = Key("kubeflow", "trial-templates")


def shipped_config_maps() -> list[Object]:
    """Return the ConfigMaps with templates that came with the package."""
    return [_read()]


def shipped_config_map(key: Key) -> Object | None:
    """Return the ConfigMap of this name that came with the package; None for any other."""
    return _read() if key == SHIPPED else None


@cache
def _read() -> Object:
    found: dict[str, Any] = yaml.safe_load(files("katib.local").joinpath("trial-templates.yaml").read_text())
    return found
