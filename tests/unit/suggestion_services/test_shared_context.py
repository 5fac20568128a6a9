"""A change of the whole process, shared by threads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from suggestion_services.base.shared_context import SharedContext, quiet


def test_the_first_enters_and_the_last_leaves_in_whatever_order() -> None:
    events: list[str] = []

    @contextmanager
    def change() -> Iterator[None]:
        events.append("enter")
        yield
        events.append("leave")

    shared = SharedContext(change)
    shared.__enter__()
    shared.__enter__()
    shared.__exit__(None, None, None)

    assert events == ["enter"]

    shared.__exit__(None, None, None)
    with shared:
        pass

    assert events == ["enter", "leave"] * 2


def test_quiet_ignores_warnings_and_gives_them_back() -> None:
    with quiet:
        warnings.warn("nobody hears", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        warnings.warn("somebody hears", UserWarning, stacklevel=1)

    assert len(heard) == 1
