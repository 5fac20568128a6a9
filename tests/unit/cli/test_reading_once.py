"""However an experiment file is run, its text is parsed once, and it is admitted once at most."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from katib.model.loading import load_documents
from katib.model.yaml_text import parse_yaml
from katib.service.tuning.submission import Gate
from tests.support.tuning import document
from tests.unit.cli.conftest import Katib

WATCHED: tuple[Callable[..., Any], ...] = (parse_yaml, load_documents, Gate.load, Gate.admit)
ONCE = {"parse_yaml": 1, "load_documents": 1, "Gate.load": 1, "Gate.admit": 1}
KNOWN = ONCE | {"Gate.admit": 0}
"""Of an experiment that is stored already, which is compared with the stored one."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the calls of the watched functions in this thread."""
    names = {function.__code__: function.__qualname__ for function in WATCHED}
    counts = Counter(dict.fromkeys(names.values(), 0))

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code in names:
            counts[names[frame.f_code]] += 1

    sys.setprofile(note)
    try:
        yield counts
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="in a data directory"),
        pytest.param(("--data-dir", "new"), id="in a new data directory"),
        pytest.param(("--restart",), id="although there is nothing to restart"),
        pytest.param(("--warm-start", "earlier.csv"), id="with earlier trials"),
        pytest.param(("--warm-start", "earlier.csv", "--data-dir", "new"), id="with them in a new data directory"),
    ],
)
def test_a_new_experiment_is_read_and_admitted_once(katib: Katib, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "demo.yaml").write_text(document("demo").replace('"random"', '"house-special"'))
    (tmp_path / "earlier.csv").write_text("x,loss\n0.5,0.7\n")
    with counted() as counts:
        result = katib("run", "demo.yaml", *arguments)

    assert result.code == 0
    assert counts == ONCE


def test_an_experiment_in_a_cluster_is_read_and_admitted_once(
    katib: Katib, tmp_path: Path, cluster: ModuleType
) -> None:
    (tmp_path / "demo.yaml").write_text(document("demo"))
    with counted() as counts:
        result = katib("run", "demo.yaml", "--context", "production")

    assert result.code == 0
    assert counts == ONCE


def test_an_experiment_from_a_line_is_read_and_admitted_once(katib: Katib) -> None:
    with counted() as counts:
        result = katib("tune", "-p", "x=0.0..1.0", "--minimize", "loss", "--algorithm", "random", "--", "echo", "{x}")

    assert result.code == 0
    assert counts == ONCE


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((), KNOWN, id="shown"),
        pytest.param(("--more", "2"), KNOWN, id="with a larger budget"),
        pytest.param(("--restart",), ONCE, id="restarted"),
    ],
)
def test_an_experiment_that_has_ended_is_read_once(
    katib: Katib, tmp_path: Path, arguments: tuple[str, ...], expected: dict[str, int]
) -> None:
    (tmp_path / "demo.yaml").write_text(document("demo"))
    katib("run", "demo.yaml")
    with counted() as counts:
        result = katib("run", "demo.yaml", *arguments)

    assert result.code == 0
    assert counts == expected


def test_an_applied_file_is_read_once(katib: Katib, tmp_path: Path, cluster: ModuleType) -> None:
    (tmp_path / "demo.yaml").write_text(document("demo"))
    with counted() as counts:
        result = katib("apply", "demo.yaml", "--context", "production")

    assert result.code == 0
    assert counts == ONCE
