"""Containers of pods in their images, by podman and docker."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from katib.engine.runtime.objects import Key, Kind, Object
from katib.places.machine.containers import RuntimeChoice, choose
from katib.places.machine.findings import Findings
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.kind import NewPod, ObservedJob, Plan, PodStart, Wiring
from katib.places.machine.pods import tools
from katib.places.machine.pods.log_file import LogFile, LogLimits
from katib.places.machine.pods.records import PodPhase
from katib.places.machine.processes.client import RECORD_FILE
from katib.places.machine.processes.remains import EngineRecord
from tests.support import podman
from tests.support.boxes import boxes, home_of_boxes, mine, script
from tests.support.local_jobs import Home, Monitors, Owner, home, job
from tests.support.memory_store import MemoryStore
from tests.support.runtimes import ALL, Installed, installed
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=ALL)
def runtime(request: pytest.FixtureRequest) -> Installed:
    try:
        return installed(request.param)
    except LookupError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def boxed(tmp_path: Path, runtime: Installed) -> Iterator[Home]:
    with home_of_boxes(tmp_path, runtime) as opened:
        yield opened


def test_a_command_replaces_the_entry_point_and_args_the_command_of_the_image(boxed: Home) -> None:
    boxed.run(job(boxes("/bin/echo", "a", args=["$(B)", "c"], env=[{"name": "B", "value": "b"}]), name="both"))
    boxed.run(job(boxes(), name="neither"))
    boxed.run(job({**boxes(args=["given"]), "image": podman.ONLY_ENTRYPOINT}, name="args"))
    boxed.run(job({**boxes(), "image": podman.ONLY_ENTRYPOINT}, name="entrypoint"))

    assert boxed.log(name="both") == "a b c\n"
    assert boxed.log(name="neither") == "loss=0.5\n"
    assert boxed.log(name="args") == "entry given\n"
    assert boxed.log(name="entrypoint") == "entry loss=0.25\n"


def test_the_environment_is_that_of_the_image_the_template_and_katib_and_not_of_the_engine(
    boxed: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_ENGINE", "1")
    env = [
        {"name": "GREETING", "value": "a\nb"},
        {"name": "HOME", "value": "/elsewhere"},
        {"name": "LD_X", "value": ""},
    ]

    boxed.run(job(boxes("/bin/env", env=env)))

    log = boxed.log()
    assert "FROM_IMAGE=1\n" in log
    assert "GREETING=a\nb\n" in log
    assert "HOME=/elsewhere\n" in log
    assert "LD_X=\n" in log
    assert "KATIB_TRIAL_NAME=j\n" in log
    assert "KATIB_TRIAL_DIR=/" in log
    assert "OF_THE_ENGINE" not in log
    assert "KATIB_ENGINE_ID" not in log


def test_the_working_directory_is_that_of_the_image_unless_it_is_given(boxed: Home, tmp_path: Path) -> None:
    boxed.run(job(script("pwd"), name="image"))
    boxed.run(job(script("pwd", workingDir="/opt"), name="given"))
    (tmp_path / "data").mkdir()
    boxed.run(job(script("pwd", workingDir="data"), name="relative"))

    assert boxed.log(name="image") == "/work\n"
    assert boxed.log(name="given") == "/opt\n"
    assert boxed.log(name="relative") == f"{tmp_path}/data\n"


def test_exit_codes_and_restarts_are_those_of_the_container(boxed: Home) -> None:
    failed = boxed.run(job(script("echo out; echo err >&2; exit 7"), name="fails", backoffLimit=0))
    mark = "[ -e $KATIB_TRIAL_DIR/mark ] && exit 0; touch $KATIB_TRIAL_DIR/mark; exit 3"
    restarted = boxed.run(job(script(mark), name="again", restart="OnFailure", backoffLimit=3))

    assert "exited with 7" in failed["message"]
    assert sorted(boxed.log(name="fails").split()) == ["err", "out"]
    assert restarted["type"] == "Complete", restarted["message"]


def test_a_container_whose_output_fills_the_disk_is_killed_and_its_log_makes_room(
    tmp_path: Path, runtime: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_log: LogFile) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tools, "LEAST_SHARE", 0.0)
    monkeypatch.setattr(LogFile, "_rotate", no_room)
    with home_of_boxes(tmp_path, runtime, log_limits=LogLimits(max_bytes=100_000)) as boxed:
        end = boxed.run(job(script("while :; do echo many words, again and again; done")))

        assert (end["type"], end["reason"]) == ("Failed", "PodEvicted")
        assert "the disk was full" in boxed.log()
        assert boxed.log_files()[0].stat().st_size < 20_000


def test_a_program_that_exits_as_the_client_of_a_broken_container_would_has_run(boxed: Home) -> None:
    assert "exited with 127" in boxed.run(job(script("echo 127; exit 127"), backoffLimit=0))["message"]


@pytest.mark.parametrize("code", [125, 126, 127])
def test_a_program_that_ends_as_the_client_of_a_broken_container_would_has_run(boxed: Home, code: int) -> None:
    end = boxed.run(job(script(f"echo 'Error: no such image' >&2; exit {code}"), backoffLimit=0))

    assert end["reason"] == "BackoffLimitExceeded"
    assert f"exited with {code}" in end["message"]
    assert end["message"].endswith(": Error: no such image")
    assert list(boxed.root.rglob("*.pid")) == []


def test_volumes_are_mounted_and_shared_by_the_containers_of_a_pod(boxed: Home, tmp_path: Path) -> None:
    boxed.store.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": "ns"},
            "data": {"a.txt": "from a map\n"},
        }
    )
    mounts = [{"name": "scratch", "mountPath": "/data/"}, {"name": "map", "mountPath": "/etc/settings"}]
    host = {"name": "host", "mountPath": "/host", "readOnly": True}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").write_text("mine\n")
    first = script("echo shared > /data/file", name="first", volumeMounts=mounts)
    text = "cat /data/file /etc/settings/a.txt /host/x; touch /etc/settings/b /host/b 2>/dev/null || echo sealed; id -u"
    main = script(text, volumeMounts=[*mounts, host], securityContext={"runAsUser": 1000, "runAsGroup": 1000})
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "map", "configMap": {"name": "settings"}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "mine")}},
    ]

    boxed.run(job(main, pod={"initContainers": [first], "volumes": volumes}))

    lines = boxed.log().splitlines()
    assert lines[:3] == ["shared", "from a map", "mine"]
    assert lines[-2:] == ["sealed", "1000"]


def test_the_directory_of_the_experiment_is_mounted_where_it_is(tmp_path: Path, runtime: Installed) -> None:
    workspace = tmp_path / "with space"
    workspace.mkdir()
    (workspace / "data").write_text("here\n")
    with home_of_boxes(tmp_path / "home", runtime, owner=Owner(workspace)) as boxed:
        boxed.run(job(script(f"cat '{workspace}/data'; echo there > '{workspace}/result'")))

        assert boxed.log() == "here\n"
        assert (workspace / "result").read_text() == "there\n"


def test_the_host_name_is_that_of_the_pod_and_leads_to_this_machine(boxed: Home) -> None:
    boxed.run(job(script('[ "$(hostname)" = "$HOSTNAME" ] && cat /etc/hosts && hostname')))

    *hosts, name = boxed.log().splitlines()
    assert any(line.split() == ["127.0.0.1", name] for line in hosts)


def test_a_container_reaches_what_listens_on_this_machine(boxed: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        received: list[bytes] = []

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(100))

        thread = threading.Thread(target=serve)
        thread.start()
        boxed.run(job(script(f"echo hello | nc 127.0.0.1 {port}")))
        thread.join(10)

        assert received == [b"hello\n"]


def test_limits_hold(boxed: Home, runtime: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    limits = {"memory": "32Mi", "cpu": "500m"}
    text = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; exec 2>&1; "
    eater = "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"

    boxed.run(job(script(text, resources={"limits": limits}), name="told"))
    end = boxed.run(job(script(eater, resources={"limits": limits}), name="eats", backoffLimit=0))

    assert boxed.log(name="told").split() == [str(32 * 2**20)]
    assert "32Mi" in end["message"]
    assert list(tmp_path.rglob("oom")) == []


def test_a_polite_stop_reaches_the_program(boxed: Home) -> None:
    boxed.submit(job(script("trap 'echo ending; exit 0' TERM; echo ready; while :; do sleep 0.1; done")))
    eventually(lambda: boxed.monitors.opened and b"ready" in boxed.monitors.opened[0].data)

    boxed.store.delete(*_key())

    eventually(lambda: not boxed.runner.runs(_key()[1]))
    assert b"ending" in boxed.monitors.opened[0].data


def test_a_program_that_does_not_listen_is_killed_when_its_time_is_over(
    boxed: Home, runtime: Installed, tmp_path: Path
) -> None:
    deaf = script("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    boxed.submit(job(deaf, pod={"terminationGracePeriodSeconds": 1}))
    eventually(lambda: boxed.monitors.opened and b"ready" in boxed.monitors.opened[0].data)

    boxed.store.delete(*_key())

    eventually(lambda: not boxed.runner.runs(_key()[1]))
    assert runtime.containers(mine(tmp_path)) == []


def test_a_verdict_ends_the_container_and_its_job_succeeds(tmp_path: Path, runtime: Installed) -> None:
    with home_of_boxes(tmp_path, runtime) as boxed:
        boxed.monitors.settings["stop_when"] = b"hopeless"

        assert boxed.run(job(script("echo hopeless; exec sleep 1000")))["reason"] == "EarlyStopped"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param(
            {"command": ["/bin/nothing"]},
            'command "/bin/nothing" is not in image "localhost/katib-tests:1"; '
            "give its path in the image, or another image",
            id="no such command",
        ),
        pytest.param(
            {"command": ["nothing"]},
            'command "nothing" is not in image "localhost/katib-tests:1"; give its path in the image, or another image',
            id="no such command in the PATH",
        ),
        pytest.param(
            {"command": ["/etc"]},
            'command "/etc" of image "localhost/katib-tests:1" may not be executed; '
            "make it executable in the image, or start it with its interpreter",
            id="not a program",
        ),
        pytest.param(
            {"image": "localhost/absent:1", "imagePullPolicy": "Never"},
            'image "localhost/absent:1" is not on this machine, and imagePullPolicy is Never; '
            "run {program} pull localhost/absent:1, or write IfNotPresent",
            id="no such image, never pulled",
        ),
        pytest.param(
            {"image": "127.0.0.1:9/absent:1", "imagePullPolicy": "Always"},
            'image "127.0.0.1:9/absent:1" cannot be pulled: ',
            id="a registry that does not answer",
        ),
    ],
)
def test_a_container_that_cannot_start_fails_its_job_at_once_and_says_why(
    boxed: Home, runtime: Installed, fields: dict[str, Any], said: str
) -> None:
    end = boxed.run(job({**boxes("/bin/true"), **fields}))

    assert end["type"] == "Failed"
    assert said.format(program=runtime.program) in end["message"]
    assert len(boxed.log_files()) == 1


def test_a_secret_value_is_not_in_the_list_of_processes(boxed: Home) -> None:
    ready = script("echo ready; exec sleep 1000", env=[{"name": "API_KEY", "value": "very-secret"}])
    boxed.submit(job(ready))
    eventually(lambda: boxed.monitors.opened and b"ready" in boxed.monitors.opened[0].data)

    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.name != str(os.getpid())]

    assert any(b"katib-j-" in line for line in lines)
    assert not any(b"very-secret" in line for line in lines)


def _key() -> tuple[Kind, Key]:
    return JOB, Key("ns", "j")


def test_a_container_that_is_lost_with_the_guard_is_removed_and_its_job_goes_on(
    boxed: Home, runtime: Installed, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    boxed.submit(job(script(f"echo ready; [ -e {gate} ] || exec sleep 1000"), backoffLimit=2))
    eventually(lambda: boxed.monitors.opened and b"ready" in boxed.monitors.opened[0].data)
    (lost,) = runtime.running(mine(tmp_path))
    record = EngineRecord.read(tmp_path / "engine" / RECORD_FILE)
    assert record is not None

    gate.touch()
    os.kill(record.guard_pid, signal.SIGKILL)

    assert boxed.wait_for_end()["type"] == "Complete"
    assert lost not in runtime.containers(mine(tmp_path))


PAIR = Kind("example.com/v1", "Pair")


class Pairs:
    """A job of a server and a client, which knows the server by its name and its port on a cluster."""

    kind = PAIR

    def plan(self, observed: ObservedJob) -> Plan:
        if observed.job.get("status", {}).get("conditions"):
            return Plan(observed.job["status"])
        if not observed.pods:
            return Plan({}, start=(PodStart(0, "server"), PodStart(0, "client")), started_at=observed.moment.steady)
        if cause := next((pod.cannot_start for pod in observed.pods if pod.cannot_start), ""):
            return Plan({"conditions": [{"type": "Failed", "status": "True", "message": cause}]})
        ended = all(pod.phase is PodPhase.SUCCEEDED for pod in observed.pods)
        conditions = [{"type": "Complete", "status": "True", "message": ""}] if ended else []
        return Plan({"conditions": conditions}, started_at=observed.started_at)

    def pod(self, job: Object, start: PodStart, wiring: Wiring) -> NewPod:
        host, port = wiring.address("pair-server-0", 8000)
        text = {
            "server": f"busybox mkfifo /tmp/f; nc -l -p {port} <> /tmp/f",  # an input that ends would end it too soon
            "client": f"until echo 'hello {host}' | nc {host} {port} 2>/dev/null; do sleep 0.1; done",
        }[start.role]
        return NewPod(f"pair-{start.role}-0", {"spec": {"containers": [script(text)]}}, "spec")

    def check(self, job: Object, path: str, findings: Findings) -> None:
        pass

    def templates(self, job: Object) -> Mapping[str, tuple[Mapping[str, Any], int]]:
        return {}


def test_a_network_that_cannot_be_made_fails_its_job_at_once(tmp_path: Path, runtime: Installed) -> None:
    images = choose(RuntimeChoice(runtime.program), {**os.environ, **runtime.variables}, tmp_path)
    assert images is not None
    broken = replace(images.prepared(), labels={"": ""}, path="/bin/false")
    with home(tmp_path, machine={"images": broken}, store=MemoryStore({PAIR}), kinds=(Pairs(),)) as boxed:
        pair = {"apiVersion": PAIR.api_version, "kind": PAIR.kind, "metadata": {"name": "pair", "namespace": "ns"}}
        boxed.submit(pair)
        eventually(lambda: boxed.store.get(PAIR, Key("ns", "pair")).get("status", {}).get("conditions"), "the end")

        (condition,) = boxed.store.get(PAIR, Key("ns", "pair"))["status"]["conditions"]
        assert condition["type"] == "Failed"
        assert "cannot be made" in condition["message"]


@pytest.mark.networks
@pytest.mark.parametrize("pushes", [False, True], ids=["names", "addresses of this machine"])
def test_the_pods_of_a_job_reach_each_other(tmp_path: Path, runtime: Installed, pushes: bool) -> None:
    """By their names on a network of their own; where a pod has to reach the engine, on the network of this machine."""
    if not pushes and not runtime.has_networks:
        pytest.skip("containers with a network are not visible to others here")

    class Pushing(Monitors):
        def needs_machine(self, job: Object) -> bool:
            return pushes

    options = {"store": MemoryStore({PAIR}), "kinds": (Pairs(),), "monitors": Pushing()}
    with home_of_boxes(tmp_path, runtime, **options) as boxed:
        pair = {"apiVersion": PAIR.api_version, "kind": PAIR.kind, "metadata": {"name": "pair", "namespace": "ns"}}
        boxed.submit(pair)
        eventually(lambda: boxed.store.get(PAIR, Key("ns", "pair")).get("status", {}).get("conditions"), "the end")

        (log,) = [path for path in boxed.log_files(name="pair") if "server" in path.parent.name]
        assert log.read_text().endswith("hello 127.0.0.1\n" if pushes else "hello pair-server-0\n")

        eventually(lambda: not runtime.networks(mine(tmp_path)), "the network is removed")
