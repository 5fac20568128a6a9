"""Modes of files that bind a check, whoever runs the tests: root may read and write everything otherwise.

Becoming another user instead would lose the modules of a checkout below a directory that only its owner may enter, and
with them whatever is imported late.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_VERSION_3 = 0x20080522
"""Of the kernel's interface: two sets of three words, effective, permitted and inheritable."""

Result = TypeVar("Result")


def bound_by_modes(check: Callable[[], Result]) -> Result:
    """Return what a check returns on a thread without the rights of root; only Linux has them by the thread."""
    with ThreadPoolExecutor(1, initializer=_give_up_rights) as thread:
        return thread.submit(check).result()


def _give_up_rights() -> None:
    if os.geteuid() == 0 and sys.platform == "linux":
        this_thread, none = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(this_thread, none) == 0
