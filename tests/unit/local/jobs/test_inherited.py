from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from katib.places.machine.admission import HostCapacity
from katib.places.machine.pods.environment import inherited_environment
from katib.wire.rpc import keep_connections_quiet

PREFIX = "import sys; print(sys.prefix)"


def prefix_of(command: str, environment: dict[str, str]) -> str:
    program = shutil.which(command, path=environment["PATH"])
    assert program is not None
    return subprocess.run([program, "-c", PREFIX], env=environment, text=True, capture_output=True, check=True).stdout


@pytest.mark.parametrize("command", ["python", "python3"])
@pytest.mark.parametrize("virtual", [True, False], ids=["a virtual environment", "a plain installation"])
def test_python_is_the_one_that_runs_katib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, virtual: bool
) -> None:
    if not virtual:
        monkeypatch.setattr(sys, "executable", getattr(sys, "_base_executable", sys.executable))
        monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    environment = inherited_environment({"PATH": "/usr/bin:/bin"}, tmp_path / "links")

    assert prefix_of(command, environment).strip() == sys.prefix
    assert environment["PATH"].endswith(":/usr/bin:/bin")


def test_a_plain_installation_brings_nothing_but_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    first = inherited_environment({"PATH": "/usr/bin"}, tmp_path / "links")["PATH"].split(":")[0]

    assert {path.name for path in Path(first).iterdir()} == {"python", "python3"}


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_python_that_the_user_has_chosen_stays(tmp_path: Path, variable: str) -> None:
    chosen = {"PATH": "/opt/mine/bin:/usr/bin", variable: "/opt/mine"}

    assert inherited_environment(chosen, tmp_path / "links") == chosen


def test_trials_inherit_neither_tokens_nor_what_is_of_the_trial_that_their_engine_runs_in(tmp_path: Path) -> None:
    of_another = {"KATIB_DB_MANAGER_ADDRESS": "db:1", "KATIB_DB_MANAGER_TOKEN": "t", "KATIB_DB_MANAGER_CA": "c"}
    of_another |= {"KATIB_ENGINE_ID": "x", "KATIB_PROCESS_ID": "x.1"}
    given = {"KATIB_TOKEN": "secret", "HOME": "/home/me", **of_another}
    environment = inherited_environment(given, tmp_path / "links")

    assert {name: environment[name] for name in environment.keys() & given.keys()} == {"HOME": "/home/me"}


def test_python_need_not_be_on_the_path_to_be_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)

    assert HostCapacity.detect().provided == {"python", "python3"}


@pytest.mark.parametrize("chosen", [{}, {"GRPC_VERBOSITY": "DEBUG"}], ids=["by default", "by the user"])
def test_how_much_grpc_prints_in_the_engine_is_no_matter_of_trials(tmp_path: Path, chosen: dict[str, str]) -> None:
    environ = {"VIRTUAL_ENV": "/env", **chosen}

    keep_connections_quiet(environ)

    assert environ["GRPC_VERBOSITY"] == chosen.get("GRPC_VERBOSITY", "ERROR")
    assert inherited_environment(environ, tmp_path) == {"VIRTUAL_ENV": "/env", **chosen}
