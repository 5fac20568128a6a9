"""Figures that take long are drawn once for all pages."""

from __future__ import annotations

import threading

import pytest

from katib.ui.kept_figures import KeptFigures


class Drawing:
    """A figure that counts how often it is drawn, with a clock that stands still."""

    def __init__(self) -> None:
        self.times = 0
        self.now = 0.0
        self.kept = KeptFigures(lambda: self.now)

    def draw(self) -> str:
        """Return the number of the drawing."""
        self.times += 1
        return str(self.times)

    def get(self, version: int, key: str = "key") -> tuple[str, int]:
        """Return what a page is answered."""
        found = self.kept.get(key, version, 10.0, self.draw)
        return found.json, found.version


def test_the_same_trials_are_drawn_once_however_late() -> None:
    drawing = Drawing()
    drawing.get(1)
    drawing.now = 1_000.0

    assert drawing.get(1) == ("1", 1)


def test_changed_trials_are_drawn_anew_after_a_while_only() -> None:
    drawing = Drawing()
    drawing.get(1)
    drawing.now = 9.0

    assert drawing.get(2) == ("1", 1)
    drawing.now = 10.0
    assert drawing.get(3) == ("2", 3)


def test_pages_that_ask_at_once_wait_for_one_drawing() -> None:
    drawing = Drawing()
    pages = [threading.Thread(target=drawing.get, args=(1,)) for _ in range(20)]
    for page in pages:
        page.start()
    for page in pages:
        page.join()

    assert drawing.times == 1


def test_an_error_is_not_kept() -> None:
    drawing = Drawing()

    def fail() -> str:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any error
        drawing.kept.get("key", 1, 10.0, fail)
    assert drawing.get(1) == ("1", 1)


def test_the_figures_asked_for_last_are_kept() -> None:
    drawing = Drawing()
    for number in range(100):
        drawing.get(1, f"key {number}")
    drawing.get(1, "key 99")
    drawing.get(1, "key 0")

    assert drawing.times == 101
