"""What another account of the machine gets from a server and its engine: nothing.

It plays `katib serve` with a trial that pushes its metrics, an early stopping service and a suggestion service at work,
and then somebody who has no token at each of their sockets. As root it really is another account.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from katib.errors import ForbiddenError
from katib.model.metrics import MetricLog
from katib.wire.rpc.db_manager_client import DbManagerClient
from tests.support.tuning import document
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
KATIB = (sys.executable, "-c", "import sys; from katib.doors.cli import main; sys.exit(main())")
LISTENS_TCP, LISTENS_UNIX = "0A", 0x10000
PUSHES = (
    "import os, time; from datetime import UTC, datetime; from katib.model.metrics import MetricLog; "
    "from katib.wire.rpc.credentials import DbManagerCredentials; "
    "from katib.wire.rpc.db_manager_client import DbManagerClient; "
    "credentials = DbManagerCredentials.of(os.environ); "
    "log = DbManagerClient(os.environ['KATIB_DB_MANAGER_ADDRESS'], credentials=credentials); "
    "log.report(os.environ['KATIB_TRIAL_NAME'], [MetricLog(datetime.now(UTC), 'loss', '0.25')]); time.sleep(600)"
)


@dataclass(frozen=True)
class Serving:
    """A server at work."""

    pid: int
    url: str
    data: Path
    environment: dict[str, str]
    printed: list[str]

    def katib(self, *args: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command as the account that the server belongs to."""
        command = [*KATIB, *args, "--server", self.url]
        return subprocess.run(
            command,
            cwd=directory or self.data.parent,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def processes(self) -> set[int]:
        """Return the server and all that came from it."""
        parents = {}
        for path in Path("/proc").glob("[0-9]*"):
            with open_or_gone(path / "stat") as text:
                if text:
                    parents[int(path.name)] = int(text.rpartition(")")[2].split()[1])
        found = {self.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def inodes(self) -> set[str]:
        """Return the sockets of these processes."""
        found = set()
        for pid in self.processes():
            for link in Path(f"/proc/{pid}/fd").glob("*"):
                try:
                    found.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
                except OSError:
                    continue
        return found

    def ports(self) -> set[int]:
        """Return where they listen on TCP."""
        lines = [line.split() for name in ("tcp", "tcp6") for line in proc_net(name)]
        inodes = self.inodes()
        return {int(f[1].rpartition(":")[2], 16) for f in lines if f[3] == LISTENS_TCP and f[9] in inodes}

    def unix_sockets(self) -> set[str]:
        """Return where they listen on Unix sockets; one was bound by a short name of its folder, whose path is long."""
        lines = [line.split() for line in proc_net("unix")]
        inodes = self.inodes()
        paths = {f[7] for f in lines if int(f[3], 16) & LISTENS_UNIX and f[6] in inodes and len(f) > 7}
        run = str(self.data / "run")
        return {re.sub(r"^/proc/self/fd/\d+(?=/guard\.sock$)", run, path) for path in paths}


class open_or_gone:  # noqa: N801 - reads as a function
    """The text of a file of /proc, empty when its process is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        try:
            return self._path.read_text()
        except OSError:
            return ""

    def __exit__(self, *_exc: object) -> None:
        pass


def proc_net(name: str) -> list[str]:
    path = Path("/proc/net") / name
    return path.read_text().splitlines()[1:] if path.exists() else []


def pushing_experiment() -> str:
    """Return an experiment whose trial pushes, under early stopping that has to look at the log."""
    raw = json.loads(document("pushing", trials=1))
    raw["spec"]["parallelTrialCount"] = 1
    raw["spec"]["metricsCollectorSpec"] = {"collector": {"kind": "Push"}}
    raw["spec"]["earlyStopping"] = {"algorithmName": "medianstop"}
    container = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    container["command"] = [sys.executable, "-c", PUSHES, "${trialParameters.x}"]
    return json.dumps(raw)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A directory that all accounts may enter, unlike pytest's: what they cannot open in it protects itself."""
    with tempfile.TemporaryDirectory(prefix="katib-home-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def serving(home: Path) -> Iterator[Serving]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("KATIB", "XDG"))},
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
    }
    data = home / "data"
    process = subprocess.Popen(
        [*KATIB, "serve", "--port", "0", "--data-dir", str(data)],
        cwd=home,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            printed = [process.stdout.readline() for _ in range(3)]
            found = re.search(r"http://[^ ]+", printed[0])
            assert found is not None
            served = Serving(process.pid, found[0], data, environment, printed)
            (home / "pushing.json").write_text(pushing_experiment())
            applied = served.katib("apply", "pushing.json")
            assert applied.returncode == 0, applied.stderr
            eventually(lambda: len(served.ports()) == 4)  # REST, Kubernetes, and where the trial pushes and posts
            eventually(lambda: "Running" in served.katib("get", "trials").stdout, "the trial runs")
            yield served
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_the_command_line_finds_the_token_from_any_directory(serving: Serving, tmp_path: Path) -> None:
    got = serving.katib("get", "-o", "name", directory=tmp_path)

    assert (got.returncode, got.stdout) == (0, "experiment/pushing\n")


def test_what_the_server_prints_gets_a_browser_and_curl_in(serving: Serving) -> None:
    token = (serving.data / "token").read_text().strip()

    parts = urlsplit(serving.katib("ui", "--print").stdout.strip())
    base, headers = f"http://127.0.0.1:{parts.port}", {"host": parts.netloc, "sec-fetch-site": "none"}
    with httpx.Client(base_url=base, trust_env=False) as browser:
        cookie = browser.get(f"{parts.path}?{parts.query}", headers=headers).headers["set-cookie"].partition(";")[0]
        page = browser.get("/katib/", headers={**headers, "cookie": cookie})

    assert token not in "".join(serving.printed)
    assert "`katib ui`" in serving.printed[1]  # other accounts may read the file of a log
    assert (page.status_code, "Experiments" in page.text) == (200, True)
    assert f'-u "katib:$(cat {serving.data / "token"})"' in serving.printed[2]
    assert httpx.get(f"{serving.url}/docs", auth=("katib", token), trust_env=False).status_code == 200


def test_the_token_outlives_the_server_and_only_its_owner_reads_it(serving: Serving) -> None:
    assert stat.S_IMODE((serving.data / "token").stat().st_mode) == 0o600
    assert stat.S_IMODE((serving.data / "katib.db").stat().st_mode) == 0o600
    notes = [*serving.data.glob("server-*.json"), *serving.data.parent.rglob("katib/server-*.json")]
    assert [stat.S_IMODE(note.stat().st_mode) for note in notes] == [0o600, 0o600]


def test_without_the_token_the_server_answers_its_probes_only(serving: Serving) -> None:
    with httpx.Client(base_url=serving.url, trust_env=False) as anyone:
        answers = {
            path: anyone.get(path).status_code
            for path in ("/healthz", "/readyz", "/metrics", "/docs", "/api/v1/experiments")
        }
        submitted = anyone.post("/api/v1/experiments", json=json.loads(document("intruder")))

    assert answers == {"/healthz": 200, "/readyz": 200, "/metrics": 401, "/docs": 401, "/api/v1/experiments": 401}
    assert submitted.status_code == 401


def test_the_page_without_the_token_is_the_way_in_only(serving: Serving) -> None:
    person = {"accept": "text/html", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    paths = ("/katib/", "/katib/experiments/default/pushing", "/katib/data/experiments/default/pushing/live")
    paths += ("/katib/fetch_experiments/?namespace=default", "/katib/api/v1/experiments")
    with httpx.Client(base_url=serving.url, trust_env=False) as anyone:
        answers = [anyone.get(path, headers=person) for path in paths]

    assert [answer.status_code for answer in answers] == [401] * len(paths)
    assert not any("pushing" in answer.text.replace('value="experiments/default/pushing"', "") for answer in answers)


def test_prometheus_reads_the_counts_with_the_token(serving: Serving) -> None:
    headers = {"authorization": f"Bearer {(serving.data / 'token').read_text().strip()}"}
    answer = httpx.get(f"{serving.url}/metrics", headers=headers, trust_env=False)

    assert answer.headers["content-type"].startswith("text/plain")
    assert 'katib_experiment_created_total{namespace="default"} 1.0' in answer.text
    assert 'katib_trials_current{namespace="default",status="Running"} 1.0' in answer.text


def post_status(port: int, trial: str) -> int | None:
    """Post the status of a trial without a token; return the code of the answer, None where no HTTP is spoken."""
    url = f"http://127.0.0.1:{port}/trials/{trial}/status"
    try:
        return httpx.post(
            url, json={"trainerStatus": {"lastUpdatedTime": "2026-08-01T12:00:00Z"}}, trust_env=False
        ).status_code
    except httpx.HTTPError:
        return None


def test_without_a_token_nobody_reads_forges_or_deletes_readings(serving: Serving) -> None:
    """The other ports are those of the log, by gRPC and as Kubeflow Trainer's status; a token opens one trial's log."""
    trial = serving.katib("trials", "pushing", "-o", "name").stdout.strip().removeprefix("trial/")
    (kubernetes,) = re.findall(r"server: \"?https://[^:]+:(\d+)", (serving.data / "kubeconfig").read_text())
    others = serving.ports() - {int(serving.url.rpartition(":")[2]), int(kubernetes)}
    answers = {port: post_status(port, trial) for port in others}
    ((port, status),) = ((port, status) for port, status in answers.items() if status is not None)
    assert status == HTTPStatus.FORBIDDEN
    log = DbManagerClient(f"127.0.0.1:{(others - {port}).pop()}", timeout_seconds=20)
    try:
        for call in (
            lambda: log.read(trial),
            lambda: log.summarize(trial, ["loss"]),
            lambda: log.report(trial, [MetricLog(datetime.now(UTC), "loss", "-1")]),
            lambda: log.delete(trial),
            lambda: log.begin(trial),
        ):
            with pytest.raises(ForbiddenError):
                call()
    finally:
        log.close()

    eventually(lambda: "0.25" in serving.katib("metrics", trial).stdout)


TRIES = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[2:]:
    try:
        if sys.argv[1] == "connect":
            socket.socket(socket.AF_UNIX).connect(path)
        else:
            os.listdir(path) if os.path.isdir(path) else open(path).close()
    except PermissionError:
        continue
    print(path)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another account")
def test_another_account_opens_neither_sockets_nor_files(serving: Serving) -> None:
    (serving.data.parent / "open").touch(mode=0o644)
    files = [serving.data, serving.data / "token", serving.data / "katib.db", serving.data / "run"]
    files += serving.data.glob("server-*.json")

    def opened(what: str, *paths: object) -> list[str]:
        command = [sys.executable, "-I", "-c", TRIES, what, *map(str, paths)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    sockets = serving.unix_sockets()
    assert len(sockets) >= 2  # of the suggestion service and of the early stopping service

    assert opened("connect", *sockets) == []
    assert opened("open", *files, serving.data.parent / "open") == [str(serving.data.parent / "open")]


def test_only_this_account_may_open_the_socket_of_the_log(serving: Serving) -> None:
    assert {stat.S_IMODE(Path(path).parent.stat().st_mode) for path in serving.unix_sockets()} == {0o700}


def test_a_note_that_no_server_holds_is_not_believed(tmp_path: Path) -> None:
    from katib.doors.rest.notes import kept_token, note_of, noted

    token, url = kept_token(tmp_path), "http://127.0.0.1:8765"
    with noted(url, tmp_path / "token", tmp_path):
        note = (tmp_path / "server-8765.json").read_text()
        found = note_of(url, None, tmp_path / "nothing", tmp_path)
        elsewhere = note_of("http://127.0.0.2:8765", tmp_path)

        assert found is not None
        assert (found.token, elsewhere, note_of("https://127.0.0.1:8765", tmp_path)) == (token, None, None)
    (tmp_path / "server-8765.json").write_text(note)  # as a crash leaves it

    assert note_of(url, tmp_path) is None
    assert kept_token(tmp_path) == token
