from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from katib.doors.cli import main
from tests.support.cli import process_state_kept
from tests.support.fake_engine import make_cluster_module, make_module
from tests.support.tuning import MemoryTuningService, document


class Result(NamedTuple):
    code: int
    out: str
    err: str


Katib = Callable[..., Result]


@pytest.fixture
def service() -> MemoryTuningService:
    return MemoryTuningService()


@pytest.fixture
def engine(service: MemoryTuningService, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = make_module(service)
    monkeypatch.setitem(sys.modules, "katib.places.machine", module)
    return module


@pytest.fixture
def cluster(service: MemoryTuningService, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = make_cluster_module(service)
    monkeypatch.setitem(sys.modules, "katib.places.cluster.access.tuning_service", module)
    return module


@pytest.fixture(autouse=True)
def _restore_process_state() -> Iterator[None]:
    with process_state_kept():
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "demo.yaml"
    path.write_text(document("demo"))
    return path


@pytest.fixture
def katib(
    engine: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Katib:
    """Run the command line in this process, in an empty directory that has a data directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in (
        "KATIB_HOME",
        "KATIB_SERVER",
        "KATIB_TOKEN",
        "KATIB_NAMESPACE",
        "KATIB_CONTEXT",
        "KATIB_DB_MANAGER_ADDRESS",
    ):
        monkeypatch.delenv(name, raising=False)
    # Nothing of ours listens on port 1, whatever runs on this machine.
    monkeypatch.setattr("katib.doors.cli.connection.DEFAULT_SERVER", "http://127.0.0.1:1")
    monkeypatch.setattr("katib.doors.cli.options.DEFAULT_SERVER", "http://127.0.0.1:1")
    monkeypatch.setattr("katib.doors.cli.run_options.DEFAULT_SERVER", "http://127.0.0.1:1")
    (tmp_path / ".katib").mkdir()

    def run(*args: str) -> Result:
        code = main(args)
        return Result(code, *capsys.readouterr())

    return run
