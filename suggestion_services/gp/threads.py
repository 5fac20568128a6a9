"""Linear algebra on one thread: matrices are small, cores belong to trials, and sums must not depend on cores."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

from suggestion_services.base.shared_context import SharedContext


@cache
def _controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # has no types
    except ImportError:  # it comes with scikit-learn; without it the limits of the environment hold
        return None
    return ThreadpoolController()  # looks at every library of the process, which takes milliseconds


def _limited() -> AbstractContextManager[Any]:
    controller = _controller()
    limited: AbstractContextManager[Any] = nullcontext() if controller is None else controller.limit(limits=1)
    return limited


one_thread = SharedContext(_limited)
