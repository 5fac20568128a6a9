from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from katib.doors.cli.app import COMMANDS
from tests.support.golden import Golden
from tests.unit.cli.conftest import Katib


def test_a_command_or_an_option_that_there_is_not_is_one_line_with_a_remedy(katib: Katib, golden: Golden) -> None:
    result = katib("aply", "x.yaml")

    assert result.code == 2
    golden(result.err)
    golden(katib("create", "-f", "x").err)
    golden(katib("sweep", "sweep.yaml").err)
    golden(katib("suspend", "demo").err)

    golden(katib("xyzzy").err)

    result = katib("get", "--outputt", "json")

    assert result.code == 2
    assert result.err.startswith("error: no such option")
    assert result.err.count("\n") == 1


def test_an_unexpected_exception_is_a_bug_with_its_traceback_in_a_file(
    katib: Katib, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    def explode(*_args: object) -> None:
        raise ZeroDivisionError("division by zero") from ValueError("mysql://u:w0rd@db/x with s3cret and wandb-k3y")

    monkeypatch.setattr("tests.support.tuning.MemoryTuningService.experiments", explode)
    monkeypatch.setattr(
        sys, "argv", ["katib", "get", "--token", "s3cret", "--api-key=k3y", "--url", "mysql://u:w0rd@db/x"]
    )
    monkeypatch.setenv("WANDB_API_KEY", "wandb-k3y")
    result = katib("get")
    (file,) = (tmp_path / ".katib").glob("katib-error-*.txt")
    text = file.read_text()

    assert file.stat().st_mode & 0o777 == 0o600
    assert [secret for secret in ("s3cret", "k3y", "w0rd") if secret in text] == []
    assert "'--token', '***'" in text
    assert result.code == 1
    golden(result.err.replace(str(file), "FILE"))
    assert result.err.count("\n") == 1
    assert "Traceback" in text


@pytest.mark.parametrize(
    ("start", "heavy"),
    [
        pytest.param(
            "from katib.doors.cli import main; main(['--help'])",
            "pydantic rich fastapi httpx sqlalchemy optuna numpy grpc yaml",
            id="help",
        ),
        pytest.param(
            "import katib.doors.cli.run.command",
            "fastapi httpx sqlalchemy optuna numpy rich uvicorn",
            id="way to the first trial",
        ),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(start: str, heavy: str) -> None:
    code = f"import sys; {start}; sys.exit(' '.join(set('{heavy}'.split()) & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == "\n"


def test_the_shell_completes_names_without_importing_commands() -> None:
    code = (
        "import sys; from katib.doors.cli import main\n"
        "try: main([])\n"
        "except SystemExit: sys.exit(str('katib.doors.cli.results' in sys.modules))"
    )
    summary = next(section["trials"].summary for section in COMMANDS.values() if "trials" in section)
    asked = {**os.environ, "_KATIB_COMPLETE": "fish_complete", "COMP_WORDS": "katib trials", "COMP_CWORD": "trials"}
    done = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=False)

    assert done.stdout == f"plain,trials\t{summary}\n"
    assert done.stderr.strip() == "False"


def test_output_that_is_closed_or_whose_reader_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m katib algorithms"
    done = subprocess.run(["bash", "-c", f"{command} >&-"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run(["bash", "-c", f"{command} >&- 2>&-"], check=False).returncode == 0

    command = f"{sys.executable} -m tests.support.fake_engine --help | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)

    assert done.stdout.startswith("Usage: katib")
    assert done.stderr == ""
    left, writing = os.pipe()
    os.close(left)
    with open(writing, "wb") as unread:  # noqa: PTH123 - of a descriptor
        line = [sys.executable, "-m", "katib", "algorithms"]
        after = subprocess.run(line, stdout=unread, stderr=subprocess.PIPE, check=False)
    assert (after.returncode, after.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_completion_script(katib: Katib, shell: str) -> None:
    assert "_KATIB_COMPLETE" in katib("completion", shell).out


def test_the_version_is_printed(katib: Katib) -> None:
    assert katib("version").out.startswith("katib 0.")
    assert katib("--version") == katib("version")
