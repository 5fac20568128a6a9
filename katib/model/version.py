"""The version of this package, in a module that imports nothing."""

from __future__ import annotations

__version__ = "0.3.0"
