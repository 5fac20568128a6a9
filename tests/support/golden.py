"""Messages kept beside the tests that make them: `test_x.golden` holds those of `test_x.py`, written by `make golden`.

A test that is about a message shows it to the fixture `golden`; review reads the difference when a sentence changes.
Tests of anything else look at the origin of an error, a reason or a field.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from katib.errors import FieldError, InvalidError

_WRITES = os.environ.get("GOLDEN") == "write"
_SECTION = re.compile(r"^# (test_\w+(?:\[.*\])?)$", re.MULTILINE)
_TIME = re.compile(r"\b\d\d:\d\d:\d\d\b|(?<=\()(\d+[dhms] ?)+(?=\)$)", re.MULTILINE)  # of day, or how long a run took
_written: dict[Path, dict[str, str]] = {}
_collected: dict[Path, set[str]] = {}


Message = str | FieldError | BaseException


class Golden:
    """The messages that a test shows, in its order."""

    def __init__(self, expected: list[str], directory: str) -> None:
        self.shown: list[str] = []
        self.expected = expected
        self._directory = directory

    def __call__(self, *messages: Message | Iterable[Message]) -> None:
        """Compare messages, each of one or more lines, with the next ones of the file; times are left out."""
        texts = [text for message in messages for text in _texts(message)]
        lines = _TIME.sub("TIME", "\n".join(texts).replace(self._directory, "DIRECTORY")).split("\n")
        lines = [line.rstrip() for line in lines if line.strip()]
        begin = len(self.shown)
        self.shown += lines
        if not _WRITES:
            assert lines == self.expected[begin : len(self.shown)], "see the difference of `make golden`"

    @contextmanager
    def raises(self, error: type[BaseException]) -> Iterator[None]:
        """Expect an exception of this class, and compare its message."""
        with pytest.raises(error) as caught:
            yield
        self(caught.value)


def _texts(message: Message | Iterable[Message]) -> Iterator[str]:
    """Yield the text of a message; a field error ends with its origin."""
    if isinstance(message, FieldError):
        yield f"{message} ({message.origin})"
    elif isinstance(message, (str, BaseException)) and not isinstance(message, InvalidError):
        yield str(message)
    else:
        for part in message.errors if isinstance(message, InvalidError) else message:
            yield from _texts(part)


def sections_of(path: Path) -> dict[str, str]:
    """Return the text of each test in a golden file."""
    _, *parts = _SECTION.split(path.read_text() if path.is_file() else "")
    return dict(zip(parts[::2], (text.strip("\n") for text in parts[1::2]), strict=True))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    """Compare the messages that a test shows with the file beside it."""
    path = request.path.with_suffix(".golden")
    name = request.node.name
    directory = str(request.getfixturevalue("tmp_path")) if "tmp_path" in request.fixturenames else "\0"
    golden = Golden(sections_of(path).get(name, "").splitlines(), directory)
    failed = request.session.testsfailed
    yield golden
    if _WRITES:
        _written.setdefault(path, {})[name] = "\n".join(golden.shown)
    elif request.session.testsfailed == failed:
        assert golden.shown == golden.expected, "see the difference of `make golden`"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """When golden files are written, leave out tests that show no message."""
    if _WRITES:
        for item in items:
            _collected.setdefault(item.path.with_suffix(".golden"), set()).add(item.name)
        shown = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in shown])
        items[:] = shown


def pytest_sessionfinish() -> None:
    """Write the golden files; what tests showed that were skipped or not chosen now stays."""
    for path, sections in _written.items():
        kept = {name: text for name, text in sections_of(path).items() if name in _collected[path]} | sections
        path.write_text("\n\n".join(f"# {name}\n{kept[name]}" for name in sorted(kept)) + "\n")
