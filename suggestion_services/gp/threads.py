"""Linear algebra on one thread: matrices are small, cores belong to trials, and sums must not depend on cores."""

from __future__ import annotations

from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # has no types

from suggestion_services.base.shared_context import SharedContext


@cache
def _controller() -> Any:
    return ThreadpoolController()  # looks at every library of the process, which takes milliseconds


one_thread = SharedContext(lambda: _controller().limit(limits=1))
