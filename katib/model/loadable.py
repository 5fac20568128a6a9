"""References to code that is imported on first use.

A composition lists its optional parts in a literal tuple, each with a `Loadable`. A run imports only the parts that it
uses, and nothing registers itself.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_importing = threading.RLock()
"""Modules of SciPy import each other: if two threads import two of them, one may find the other half initialized."""


@dataclass(frozen=True, slots=True)
class Loadable(Generic[T_co]):
    """A name in a module: `Loadable("katib.model.types:Experiment")`. A test loads every one in this package."""

    path: str

    def load(self) -> T_co:
        module, _, name = self.path.partition(":")
        with _importing:
            return cast("T_co", getattr(importlib.import_module(module), name))


class Deferred(Generic[T]):
    """An object that is created on first use. Thread-safe."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self.made: T | None = None
        """The object, if it has been created."""

    def get(self) -> T:
        with self._lock:
            if self.made is None:
                self.made = self._make()
            return self.made


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: a module is imported when one of its names is first used.

    Args:
        package: Name of the package.
        modules: The names of each of its modules, separated by spaces.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{places[name]}"), name)

    return get
