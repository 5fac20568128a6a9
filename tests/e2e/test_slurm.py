"""Experiments whose trials are jobs of a real Slurm cluster: as a user on a login node has them."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import KATIB, environment, katib, katib_json
from tests.support.experiments import an_experiment
from tests.support.slurm import SlurmCluster, slurm_cluster, why_not
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := why_not():
        pytest.skip(reason)
    with slurm_cluster() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: SlurmCluster) -> Iterator[None]:
    yield
    try:
        # Slurm may show a job for long of which nothing runs: as COMPLETING where its node was killed as it ended, as
        # RUNNING where its controller was killed before it had saved that end. What runs is a process.
        picture = functools.partial(cluster.command, "squeue", "-o", "%i %T %r %N %j %M")
        cluster.resume_nodes()
        eventually(lambda: not cluster.command("squeue", "-h", "-t", "PD,S,CF"), "no job that waits", picture=picture)
        eventually(lambda: not cluster.trial_processes(), "the end of the last process of a trial", picture=picture)
    finally:
        cluster.command("scancel", "--user=root")


def write(directory: Path, command: str, *, job: dict[str, Any] | None = None, pod: Any = None, **spec: Any) -> Path:
    """Write an experiment whose trials run a shell command; `pod` are further fields of the pod template."""
    raw = an_experiment(command=command, **spec)
    source = raw["spec"]["trialTemplate"]["trialSpec"]
    source["spec"].update(job or {})
    template = source["spec"]["template"]
    template.update(pod or {})
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "64Mi"}}
    path = directory / "experiment.json"
    path.write_text(json.dumps(raw))
    return path


def run(file: Path, cluster: SlurmCluster, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = katib("run", file, "--on", "slurm", *options, cwd=file.parent, **cluster.environment)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def words_of(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def files_of_trials(directory: Path) -> list[str]:
    return sorted({path.name for path in (directory / ".katib/trials").rglob("*") if path.is_file()})


LOSS = "echo loss=${trialParameters.learningRate}"


def test_each_trial_is_a_job_and_leaves_two_files(tmp_path: Path, cluster: SlurmCluster) -> None:
    before = set(cluster.jobs())
    run(write(tmp_path, f"{LOSS}; echo on $SLURMD_NODENAME"), cluster)
    trials = katib_json("trials", "demo", cwd=tmp_path)["items"]

    assert [trial["status"]["conditions"][-1]["type"] for trial in trials] == ["Succeeded"] * 3
    assert len(set(cluster.jobs()) - before) == 3
    assert files_of_trials(tmp_path) == ["pod.json", "training.log"]
    assert not any((tmp_path / ".katib/run/slurm").iterdir())


PUSH = "python3 -c 'import katib; katib.report(loss=0.5, step=1); katib.report(loss=0.25, step=2)'"


def test_readings_are_pushed_where_nodes_reach_katib_and_a_job_that_it_left_is_ended(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    command = f"{PUSH}; echo x >>began; test -e go || exec sleep 600; : ${{trialParameters.learningRate}}"
    push = {"collector": {"kind": "Push"}}
    file = write(tmp_path, command, maxTrialCount=1, parallelTrialCount=1, metricsCollectorSpec=push)
    refused = run(file, cluster, code=2)
    argv = [*KATIB, "run", str(file), "--on", "slurm", "--address", "127.0.0.1"]
    with subprocess.Popen(argv, cwd=tmp_path, env=environment(**cluster.environment)) as process:
        eventually(lambda: words_of(tmp_path / "began") == ["x"], "a program that has pushed")
        before = set(cluster.command("squeue", "-h", "-o", "%i").split())
        process.kill()
    (tmp_path / "go").touch()
    run(file, cluster, "--address", "127.0.0.1")
    (trial,) = katib_json("trials", "demo", cwd=tmp_path)["items"]
    readings = katib_json("metrics", trial["metadata"]["name"], cwd=tmp_path)

    assert "give --address HOST" in refused.stderr
    assert [(reading["step"], reading["value"]) for reading in readings] == [(1, "0.5"), (2, "0.25")]
    eventually(lambda: not before & set(cluster.command("squeue", "-h", "-o", "%i").split()), "the end of the first")


EXPOSE = """
import http.server, os, sys

class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"loss {sys.argv[1]}\\n".encode())

server = http.server.HTTPServer(("", int(os.environ["KATIB_METRICS_PORT"])), Metrics)
server.handle_request()
"""


@pytest.mark.parametrize("inside", [False, True], ids=["jobs", "steps"])
def test_metrics_are_scraped_at_the_nodes(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, inside: bool
) -> None:
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    (tmp_path / "expose.py").write_text(EXPOSE)
    endpoint = {"collector": {"kind": "PrometheusMetric"}, "source": {"httpGet": {"path": "/metrics"}}}
    command = "python3 expose.py ${trialParameters.learningRate}"
    file = write(tmp_path, command, maxTrialCount=3, parallelTrialCount=3, metricsCollectorSpec=endpoint)
    done = katib("run", file, "--on", "slurm", cwd=tmp_path, **variables)
    trials = katib_json("trials", "demo", cwd=tmp_path)["items"]

    assert done.returncode == 0, done.stdout
    for trial in trials:
        (metric,) = trial["status"]["observation"]["metrics"]
        assert float(metric["latest"]) == float(trial["spec"]["parameterAssignments"][0]["value"])


def test_a_batch_script_is_tuned_with_its_options_and_its_tasks(tmp_path: Path, cluster: SlurmCluster) -> None:
    script = "#!/bin/bash\n#SBATCH -t 7 --array=0-3 --chdir=sub\nsrun sh -c 'echo loss=$LR of $SLURM_NTASKS in $PWD'\n"
    (tmp_path / "train.sbatch").write_text(script + 'squeue -h -j "$SLURM_JOB_ID" -o %l\n')
    (tmp_path / "sub").mkdir()
    words = ("sbatch", "-n2", "--export=ALL,LR={lr}", "train.sbatch")
    line = ["-p", "lr=0.1,0.2", "--minimize", "loss", "--trials", "2", "--on", "slurm"]
    done = katib("tune", *line, "--", *words, cwd=tmp_path, **cluster.environment)

    assert done.returncode == 0, done.stderr
    assert "time=7, ntasks=2" in done.stderr
    assert "note: array of " in done.stderr
    for log in (tmp_path / ".katib/trials").rglob("*.log"):
        first, second, limit = log.read_text().split("\n")[:3]
        assert first == second
        assert (first.endswith(f" of 2 in {tmp_path}/sub"), limit) == (True, "7:00")


@pytest.mark.parametrize("inside", [False, True], ids=["jobs", "steps"])
@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ("--nodes=2 --ntasks-per-node=2", ""),
        ("--export=NONE", ""),
        ("--export=FOO=1,BAR --ntasks=1 --nodes=2", "Warning: can't run 1 processes on 2 nodes, setting nnodes to 1"),
    ],
    ids=["nodes", "export-none", "export-warning"],
)
def test_a_batch_script_runs_as_sbatch_runs_it(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, options: str, warning: str, inside: bool
) -> None:
    (tmp_path / "train.sbatch").write_text(
        f"#!/bin/bash\n#SBATCH {options} --mem=64M\necho FOO=$FOO BAR=$BAR LEAK=$LEAK on $SLURM_NNODES\n"
        "srun /bin/sh -c 'echo task FOO=$FOO BAR=$BAR LEAK=$LEAK'\necho loss=$1\n"
    )
    theirs = {"FOO": "f", "BAR": "b", "LEAK": "l"}
    by_hand = ["sbatch", "--wait", "--output=by-hand", "train.sbatch", "0.1"]
    env = environment(**cluster.environment, **theirs)
    submitted = subprocess.run(by_hand, cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    line = ["-p", "lr=0.1", "--minimize", "loss", "--trials", "1", "--on", "slurm", "--", "./train.sbatch", "{lr}"]
    done = katib("tune", *line, cwd=tmp_path, **variables, **theirs)

    assert done.returncode == 0, done.stderr
    assert warning in submitted.stderr
    assert ("note: sbatch: " in done.stderr) is bool(warning)
    assert warning.partition(" ")[2] in done.stderr
    (log,) = (tmp_path / ".katib/trials").rglob("*.log")
    assert log.read_text().splitlines() == (tmp_path / "by-hand").read_text().splitlines()


@pytest.mark.parametrize("inside", [False, True], ids=["job", "step"])
def test_lines_of_standard_output_and_standard_error_are_not_mixed(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, inside: bool
) -> None:
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    halves = "; ".join(f"printf loss=0.{digit}; echo 2026-11-28 saved >&2; echo" for digit in (6, 5))
    command = f"{halves}; printf 1 >&2; printf loss=0.7; : ${{trialParameters.learningRate}}"
    file = write(tmp_path, command, maxTrialCount=1, parallelTrialCount=1)
    done = katib("run", file, "--on", "slurm", cwd=tmp_path, **variables)
    (trial,) = katib_json("trials", "demo", cwd=tmp_path)["items"]
    readings = katib_json("metrics", trial["metadata"]["name"], cwd=tmp_path)
    (log,) = (tmp_path / ".katib/trials").rglob("*.log")

    assert done.returncode == 0, done.stderr
    assert [reading["value"] for reading in readings] == ["0.6", "0.5", "0.7"]
    assert sorted(log.read_text().splitlines()) == ["1", *["2026-11-28 saved"] * 2, "loss=0.5", "loss=0.6", "loss=0.7"]


def test_a_line_is_tuned_in_slurm(tmp_path: Path, cluster: SlurmCluster) -> None:
    line = ["-p", "lr=0.1,0.2", "--minimize", "loss", "--trials", "2", "--on", "slurm", "--slurm-option", "time=5"]
    done = katib(
        "tune", *line, "--", "sh", "-c", "echo loss={lr} on $SLURMD_NODENAME", cwd=tmp_path, **cluster.environment
    )

    assert done.returncode == 0, done.stderr
    assert any("on n" in log.read_text() for log in (tmp_path / ".katib/trials").rglob("*.log"))


def test_a_program_that_fails_is_quoted_with_its_exit_code(tmp_path: Path, cluster: SlurmCluster) -> None:
    done = run(write(tmp_path, f"{LOSS}; echo boom; exit 3", maxTrialCount=1, parallelTrialCount=1), cluster, code=1)

    assert "boom (exit code 3)" in done.stdout


def test_init_containers_and_restarts_in_place(tmp_path: Path, cluster: SlurmCluster) -> None:
    command = f"test -e again || {{ touch again; exit 1; }}; cat made; {LOSS}"
    file = write(tmp_path, command, maxTrialCount=1, parallelTrialCount=1)
    raw = json.loads(file.read_text())
    spec = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    spec["restartPolicy"] = "OnFailure"
    raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["backoffLimit"] = 2
    spec["initContainers"] = [{"name": "first", "image": "x", "command": ["sh", "-c", "echo '$it\"s' > made"]}]
    file.write_text(json.dumps(raw))
    run(file, cluster)
    (log,) = (tmp_path / ".katib/trials").rglob("training.log")

    assert log.read_text().splitlines()[0] == '$it"s'


def test_requests_and_options_reach_slurm(tmp_path: Path, cluster: SlurmCluster) -> None:
    annotated = {"metadata": {"annotations": {"katib.kubeflow.org/slurm-options": "time=7 gres=gpu:1"}}}
    command = f"{LOSS}; scontrol -o show job $SLURM_JOB_ID"
    file = write(tmp_path, command, pod=annotated, maxTrialCount=1, parallelTrialCount=1)
    run(file, cluster, "--slurm-option", "partition=other")
    (log,) = (tmp_path / ".katib/trials").rglob("training.log")

    words = log.read_text().split()
    assert {"Partition=other", "TimeLimit=00:07:00", "MinMemoryNode=64M", "CPUs/Task=1"} <= set(words)


@pytest.mark.parametrize(
    ("options", "resources", "words"),
    [
        (["--slurm-option", "partition=nope"], {}, "Invalid partition name specified"),
        (["--slurm-option", "constraint=nope"], {}, "Invalid feature specification"),
        (["--slurm-option", "output=x"], {}, "--output is set for every trial already"),
        ([], {"memory": "900Gi"}, "Requested node configuration is not available"),
        ([], {"nvidia.com/gpu": "9"}, "Requested node configuration is not available"),
    ],
)
def test_what_slurm_would_refuse_is_refused_at_submission_in_one_line(
    tmp_path: Path, cluster: SlurmCluster, options: list[str], resources: dict[str, str], words: str
) -> None:
    file = write(tmp_path, LOSS)
    raw = json.loads(file.read_text())
    (container,) = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": resources}
    file.write_text(json.dumps(raw))
    done = run(file, cluster, *options, code=2)

    assert words in done.stderr
    assert (len(done.stderr.splitlines()), (tmp_path / ".katib").exists()) == (1, False)


ENDLESS = f"{LOSS}; exec sleep 600"


@pytest.fixture
def running(tmp_path: Path, cluster: SlurmCluster) -> Iterator[subprocess.Popen[str]]:
    """Run two trials that do not end by themselves."""
    file = write(tmp_path, ENDLESS, maxTrialCount=2)
    command = [*KATIB, "run", str(file), "--on", "slurm"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(**cluster.environment), stdout=pipe, stderr=pipe, text=True
    ) as process:
        eventually(lambda: cluster.command("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()[1:], "two jobs")
        yield process
        if process.poll() is None:
            process.kill()


def test_scancel_by_hand_fails_the_trial_and_says_so(
    tmp_path: Path, cluster: SlurmCluster, running: subprocess.Popen[str]
) -> None:
    jobs = cluster.command("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()
    cluster.command("scancel", *jobs)
    out, _ = running.communicate(timeout=60)

    assert running.returncode == 1
    assert "was cancelled in Slurm" in out


@pytest.mark.parametrize("resumes", [True, False], ids=["resumed", "interrupted"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_an_engine_that_ends_leaves_jobs_which_the_next_one_goes_on_with(
    tmp_path: Path, cluster: SlurmCluster, running: subprocess.Popen[str], end: signal.Signals, resumes: bool
) -> None:
    jobs = set(cluster.command("squeue", "-h", "-o", "%i").split())
    running.send_signal(end)
    _, said = running.communicate(timeout=60)
    refused = katib("run", tmp_path / "experiment.json", cwd=tmp_path)
    serve, env = [*KATIB, "serve", "--on", "slurm", "--port", "0"], environment(**cluster.environment)
    with (tmp_path / "served").open("wb") as said_by_server:
        server = subprocess.Popen(serve, cwd=tmp_path, env=env, stderr=subprocess.STDOUT, stdout=said_by_server)
    try:
        eventually(lambda: "listens" in (tmp_path / "served").read_text(), "a server")
        if resumes:
            assert katib("resume", "demo", cwd=tmp_path).returncode == 0
            eventually(lambda: "2 running" in katib("why", "demo", cwd=tmp_path).stdout, "two running trials")
        same = set(cluster.command("squeue", "-h", "-o", "%i").split())
        deleted = katib("delete", "demo", cwd=tmp_path)
        eventually(lambda: not cluster.command("squeue", "-h"), "no job")
    finally:
        server.terminate()
        server.wait(60)

    assert ("running trials continue in Slurm (2)" in said) is (end == signal.SIGINT)
    assert "add --on slurm" in refused.stderr
    assert (same, deleted.returncode) == (jobs, 0), deleted.stderr


def test_jobs_that_were_left_end_with_their_experiment_without_a_server(
    tmp_path: Path, cluster: SlurmCluster, running: subprocess.Popen[str]
) -> None:
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    stopped = katib("stop", "demo", cwd=tmp_path, **cluster.environment)
    left = cluster.command("squeue", "-h", "-o", "%i").split()
    deleted = katib("delete", "demo", cwd=tmp_path, **cluster.environment)
    eventually(lambda: not cluster.command("squeue", "-h"), "no job")

    assert (stopped.returncode, deleted.returncode, len(left)) == (0, 0, 2), stopped.stderr + deleted.stderr
    assert not any((tmp_path / ".katib/run/slurm").iterdir())


def test_jobs_that_were_left_in_one_cluster_are_not_submitted_in_another(
    tmp_path: Path, cluster: SlurmCluster, running: subprocess.Popen[str]
) -> None:
    running.send_signal(signal.SIGKILL)
    running.wait(60)
    with slurm_cluster("other") as other:
        words = ("run", tmp_path / "experiment.json", "--on", "slurm"), ("delete", "demo")
        refused = [katib(*line, cwd=tmp_path, **other.environment) for line in words]
        submitted = other.jobs()
    left = cluster.command("squeue", "-h", "-o", "%i").split()
    deleted = katib("delete", "demo", cwd=tmp_path, **cluster.environment)
    eventually(lambda: not cluster.command("squeue", "-h"), "no job")

    for done in refused:
        assert 'cluster "katib", and this is "other"' in done.stderr
        assert (done.returncode != 0, done.stderr.count("\n")) == (True, 1)
    assert (submitted, len(left), deleted.returncode) == ([], 2, 0), deleted.stderr


def test_a_stop_ends_jobs_that_wait_and_leaves_those_that_run(tmp_path: Path, cluster: SlurmCluster) -> None:
    command = f"{LOSS}; while test ! -e go; do sleep 0.1; done"
    file = write(tmp_path, command, maxTrialCount=4, parallelTrialCount=4)
    argv = [*KATIB, "run", str(file), "--on", "slurm", "--slurm-option", "exclusive"]
    env, listed = environment(**cluster.environment), ("squeue", "-h", "-o", "%i", "-t")
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        eventually(lambda: len(cluster.command(*listed, "R").split()) == 3, "three jobs that run")
        eventually(lambda: "3 running, 1 waiting" in katib("why", "demo", cwd=tmp_path).stdout, "one that waits")
        stopped = katib("stop", "demo", cwd=tmp_path)
        eventually(lambda: not cluster.command(*listed, "PD"), "no job that waits")
        left = cluster.command(*listed, "R").split()
        (tmp_path / "go").touch()
        eventually(lambda: "Stopped" in katib("get", "demo", cwd=tmp_path).stdout, "a stopped experiment")
        resumed = katib("resume", "demo", cwd=tmp_path)
        said, _ = process.communicate(timeout=120)

    assert (stopped.returncode, len(left), resumed.returncode) == (0, 3, 0)
    assert "all 4 trials" in said
    assert "started again" not in said


def test_a_job_that_takes_too_much_memory_ends_with_that_reason(tmp_path: Path, cluster: SlurmCluster) -> None:
    command = f"{LOSS}; python3 -c 'import time; x = bytearray(200 << 20); time.sleep(600)'"
    done = run(write(tmp_path, command, maxTrialCount=1, parallelTrialCount=1), cluster, code=1)

    assert "out of memory" in done.stdout


def test_a_node_that_fails_is_the_reason_of_its_trials(
    tmp_path: Path, cluster: SlurmCluster, running: subprocess.Popen[str]
) -> None:
    nodes = set(cluster.command("squeue", "-h", "-t", "RUNNING", "-o", "%N").split())
    cluster.command("scontrol", "update", f"NodeName={','.join(nodes)}", "State=DOWN", "Reason=test")
    out, _ = running.communicate(timeout=60)
    with suppress(subprocess.CalledProcessError):  # they have come back by themselves
        cluster.command("scontrol", "update", f"NodeName={','.join(nodes)}", "State=RESUME")

    assert any(f"node failed on {node}" in out for node in nodes)


TRAINING = """
file=$KATIB_CHECKPOINT_DIR/step
trap 'asked=yes; touch asked' TERM
step=$(cat $file || echo 0)
while [ $step -lt 12 ]; do
  [ -z "$asked" ] || exit 0
  step=$((step + 1)); echo $step > $file; echo loss=$step
  sleep 0.3
  while [ $step = 8 ] && [ ! -e asked ]; do sleep 0.1; done
done
: ${trialParameters.learningRate}
"""
"""Twelve steps, of which the ninth follows when the program has been asked to end: a test may take long for that."""


def test_a_trial_that_makes_room_for_a_job_of_more_importance_goes_on_from_its_checkpoint_and_has_not_failed(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    settings = [
        {"name": "suggestion_trial_dir", "value": "/checkpoints"},
        {"name": "n_population", "value": "5"},
        {"name": "truncation_threshold", "value": "0.2"},
    ]
    algorithm = {"algorithmName": "pbt", "algorithmSettings": settings}
    file = write(tmp_path, TRAINING, maxTrialCount=1, parallelTrialCount=1, algorithm=algorithm)
    argv, env = [*KATIB, "run", str(file), "--on", "slurm"], environment(**cluster.environment)
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        eventually(lambda: any("loss=4" in log.read_text() for log in tmp_path.rglob("training.log")), "four steps")
        urgent = ["sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null"]
        cluster.command(*urgent, "--wrap", "exec sleep 1")
        out, _ = process.communicate(timeout=120)
    (trial,) = katib_json("trials", "demo", cwd=tmp_path)["items"]
    readings = katib_json("metrics", trial["metadata"]["name"], cwd=tmp_path)

    assert process.returncode == 0, out
    assert "was preempted" in out
    assert [float(reading["value"]) for reading in readings] == [float(step) for step in range(1, 13)]
    assert len(list(tmp_path.rglob("training.log"))) == 2


@pytest.mark.parametrize("end", ["time limit", "node failed"])
def test_a_trial_goes_on_from_its_checkpoint_after_its_time_limit_and_after_its_node_failed(
    tmp_path: Path, cluster: SlurmCluster, end: str
) -> None:
    file = write(tmp_path, TRAINING, maxTrialCount=1, parallelTrialCount=1)
    argv, env = [*KATIB, "run", str(file), "--checkpoint", "--on", "slurm"], environment(**cluster.environment)
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        eventually(lambda: any("loss=4" in log.read_text() for log in tmp_path.rglob("training.log")), "four steps")
        job, node = cluster.command("squeue", "-h", "-t", "R", "-o", "%i %N").split()
        if end == "time limit":
            cluster.command("scontrol", "update", f"JobId={job}", "EndTime=now+1")
        else:
            cluster.command("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
            (tmp_path / "asked").touch()
            with suppress(subprocess.CalledProcessError):  # it has come back by itself
                cluster.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
        out, _ = process.communicate(timeout=120)
    (trial,) = katib_json("trials", "demo", cwd=tmp_path)["items"]
    readings = katib_json("metrics", trial["metadata"]["name"], cwd=tmp_path)

    assert process.returncode == 0, out
    assert end in out
    assert [float(reading["value"]) for reading in readings] == [float(step) for step in range(1, 13)]
    assert len(list(tmp_path.rglob("training.log"))) == 2


def test_options_may_change_and_are_tested_when_an_experiment_goes_on(tmp_path: Path, cluster: SlurmCluster) -> None:
    def write_with(time: str) -> Path:
        annotated = {"metadata": {"annotations": {"katib.kubeflow.org/slurm-options": f"time={time}"}}}
        command = f"squeue -h -j $SLURM_JOB_ID -o '%l %P'; {LOSS}; until test -e go; do sleep 0.1; done"
        return write(tmp_path, command, pod=annotated, maxTrialCount=2, parallelTrialCount=1)

    def first_lines() -> list[str]:
        return sorted(log.read_text().partition("\n")[0] for log in tmp_path.rglob("training.log"))

    file, options = write_with("5"), ["--checkpoint", "--slurm-option"]
    argv = [*KATIB, "run", str(file), "--on", "slurm", *options, "partition=other"]
    with subprocess.Popen(argv, cwd=tmp_path, env=environment(**cluster.environment)) as process:
        eventually(lambda: first_lines() == ["5:00 other"], "a job")
        process.send_signal(signal.SIGINT)
    refused = run(file, cluster, *options, "partitoin=other", code=2)
    write_with("7")
    (tmp_path / "go").touch()
    run(file, cluster, *options, "partition=main")
    trials = katib_json("trials", "demo", cwd=tmp_path)["items"]

    assert "unrecognized option '--partitoin=other'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert [trial["status"]["conditions"][-1]["type"] for trial in trials] == ["Succeeded"] * 2
    assert first_lines() == ["7:00 main", "7:00 main"]


def test_a_trial_that_a_full_disk_ended_is_run_again_and_the_disk_is_named(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    small, ballast = tmp_path / "small", tmp_path / "small/ballast"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        command = f"echo x >>{tmp_path}/began; until test -e {tmp_path}/go; do sleep 0.1; done; {LOSS}"
        file = write(small, command, maxTrialCount=1, parallelTrialCount=1)
        argv, env = [*KATIB, "run", str(file), "--on", "slurm"], environment(**cluster.environment)
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, cwd=small, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
            eventually(lambda: words_of(tmp_path / "began"), "a program")
            with ballast.open("wb", buffering=0) as file_, suppress(OSError):
                while file_.write(bytes(4096)):
                    pass
            (tmp_path / "go").touch()
            eventually(lambda: not cluster.trial_processes(), "the end of the program")
            ballast.unlink()
            out, _ = process.communicate(timeout=120)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)

    assert process.returncode == 0, out
    assert f"ended while the disk of {small}" in out
    assert words_of(tmp_path / "began") == ["x", "x"]


def test_a_paused_trial_goes_on_in_another_job_which_outlives_katib(tmp_path: Path, cluster: SlurmCluster) -> None:
    file = write(tmp_path, TRAINING, maxTrialCount=1, parallelTrialCount=1)
    argv, env = [*KATIB, "run", str(file), "--checkpoint", "--on", "slurm"], environment(**cluster.environment)

    def logs(text: str) -> int:
        return sum(text in log.read_text() for log in tmp_path.rglob("training.log"))

    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as process:
        eventually(lambda: logs("loss=4\n") == 1, "four steps")
        (trial,) = katib_json("trials", "demo", cwd=tmp_path)["items"]
        name = trial["metadata"]["name"]
        paused = katib("pause", name, cwd=tmp_path)
        eventually(lambda: not cluster.command("squeue", "-h"), "the end of its job")
        resumed = katib("resume", name, cwd=tmp_path)
        eventually(lambda: sum(bool(log.read_text()) for log in tmp_path.rglob("training.log")) == 2, "a second job")
        process.kill()
    done = katib("run", file, "--checkpoint", "--on", "slurm", cwd=tmp_path, **cluster.environment)
    readings = katib_json("metrics", name, cwd=tmp_path)

    assert (paused.returncode, resumed.returncode, done.returncode) == (0, 0, 0), done.stdout
    assert [float(reading["value"]) for reading in readings] == [float(step) for step in range(1, 13)]
    assert len(list(tmp_path.rglob("training.log"))) == 2


@pytest.mark.parametrize(
    ("inside", "times"), [(False, 1), (False, 2), (True, 1), (True, 2)], ids=["job", "job-2", "step", "step-2"]
)
def test_a_trial_goes_on_from_its_checkpoint_after_ctrl_c_once_or_twice(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, inside: bool, times: int
) -> None:
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    saves = "trap 'echo x >>asked; sleep 1; echo x >>ended; asked=yes' TERM; echo x >>began"
    command = TRAINING.replace("trap 'asked=yes; touch asked' TERM", saves)
    file = write(tmp_path, command, maxTrialCount=1, parallelTrialCount=1)
    argv, env = [*KATIB, "run", str(file), "--checkpoint", "--on", "slurm"], environment(**variables)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, text=True) as process:
        eventually(lambda: any("loss=4" in log.read_text() for log in tmp_path.rglob("training.log")), "four steps")
        process.send_signal(signal.SIGINT)
        if times == 2:
            eventually(lambda: words_of(tmp_path / "asked"), "a program that is asked to end")
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    saved = words_of(tmp_path / "ended")
    done = katib("run", file, "--checkpoint", "--on", "slurm", cwd=tmp_path, **variables)
    (trial,) = katib_json("trials", "demo", cwd=tmp_path)["items"]
    readings = katib_json("metrics", trial["metadata"]["name"], cwd=tmp_path)

    assert (process.returncode, done.returncode) == (130, 0), done.stdout
    if times == 1:
        assert (len(saved), "their checkpoints are kept (1)" in said) == (1, True)
    assert words_of(tmp_path / "ended")  # the next run may ask a program again that has not ended yet
    assert len(words_of(tmp_path / "began")) == 2
    assert [float(reading["value"]) for reading in readings] == [float(step) for step in range(1, 13)]


def test_a_trial_waits_with_slurms_reason(tmp_path: Path, cluster: SlurmCluster) -> None:
    cluster.command("scontrol", "update", "PartitionName=other", "State=DOWN")
    file = write(tmp_path, LOSS, maxTrialCount=1, parallelTrialCount=1)
    command = [*KATIB, "run", str(file), "--on", "slurm", "--slurm-option", "partition=other"]
    env = environment(**cluster.environment)
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        eventually(lambda: "is pending (PartitionDown)" in katib("why", "demo", cwd=tmp_path).stdout, "the reason")
        cluster.command("scontrol", "update", "PartitionName=other", "State=UP")
        process.communicate(timeout=60)

    assert process.returncode == 0


def test_kills_of_katib_and_of_slurm_lose_no_trial_and_repeat_none(tmp_path: Path, cluster: SlurmCluster) -> None:
    count = 24
    command = f"sleep 0.4; {LOSS}; echo $KATIB_TRIAL_NAME >> {tmp_path}/ran"
    file = write(tmp_path, command, maxTrialCount=count, parallelTrialCount=6)
    env = environment(**cluster.environment)
    argv = [*KATIB, "run", str(file), "--on", "slurm"]
    for kill in ["katib", "slurmctld", "katib", "n1", "katib", "munged", "katib"]:
        ended = len(words_of(tmp_path / "ran"))
        with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as process:
            while len(words_of(tmp_path / "ran")) == ended and process.poll() is None:
                time.sleep(0.05)
            if kill != "katib":
                cluster.kill(kill)
                cluster.start_daemon(kill)
            process.kill()
        cluster.resume_nodes()
    run(file, cluster)
    ran = words_of(tmp_path / "ran")
    trials = katib_json("trials", "demo", cwd=tmp_path)["items"]

    assert (len(ran), len(set(ran)), len(trials)) == (count, count, count)
    ends = [trial["status"]["conditions"][-1] for trial in trials]
    assert [end["message"] for end in ends if end["type"] != "Succeeded"] == []
    for trial in trials:
        (metric,) = trial["status"]["observation"]["metrics"]
        assert metric["latest"] == trial["spec"]["parameterAssignments"][0]["value"]


def test_jobs_that_a_killed_controller_has_forgotten_are_run_again_and_not_mistaken_for_others(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    """The controller loses what happened after its last saving; nodes end what it does not know; numbers come again.

    A number that comes before its node has ended the old job is taken for that one by Slurm, until the old one ends.
    """
    command = f"echo $KATIB_TRIAL_NAME >> {tmp_path}/began; test -e {tmp_path}/go || exec sleep 60; {LOSS}"
    file = write(tmp_path, command, maxTrialCount=2, parallelTrialCount=2)
    argv, env = [*KATIB, "run", str(file), "--on", "slurm"], environment(**cluster.environment)
    cluster.save_state()
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as process:
        eventually(lambda: len(words_of(tmp_path / "began")) == 2, "two running trials")
        numbers = set(cluster.command("squeue", "-h", "-o", "%i").split())
        cluster.kill("slurmctld")
        cluster.restore_state()
        (tmp_path / "go").touch()
        cluster.start_daemon("slurmctld")
        by_hand = ["sbatch", "--parsable", "--no-requeue", "--output=/dev/null", "--wrap", "exit 3"]
        eventually(lambda: cluster.command(*by_hand).strip() in numbers, "a number that is given a second time")
        out, _ = process.communicate(timeout=120)
    cluster.command("scancel", "--name=wrap")  # Slurm may try one by hand again, much later

    assert process.returncode == 0, out
    assert sorted(words_of(tmp_path / "began")) == sorted(2 * list(set(words_of(tmp_path / "began"))))


def test_a_job_that_slurm_goes_on_to_show_as_running_after_its_end_is_cancelled(
    tmp_path: Path, cluster: SlurmCluster
) -> None:
    waits = "until test -e {}; do sleep 0.1; done"
    command = f"if mkdir first; then {waits.format('one')}; else {waits.format('two')}; fi"
    file = write(tmp_path, f"{command}; {LOSS}", maxTrialCount=2)
    argv, env = [*KATIB, "run", str(file), "--on", "slurm"], environment(**cluster.environment)
    cancelled = ["squeue", "-h", "-t", "CA", "-o", "%i"]
    before = cluster.command(*cancelled)

    def running() -> int:
        return len(cluster.command("squeue", "-h", "-t", "R", "-o", "%i").split())

    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as process:
        eventually(lambda: running() == 2, "two jobs")
        cluster.kill("slurmctld", signal.SIGTERM)  # it saves that both run
        cluster.save_state()
        cluster.start_daemon("slurmctld")
        process.send_signal(signal.SIGSTOP)  # it would cancel no job of which it has seen the end in Slurm, too
        (tmp_path / "one").touch()
        eventually(lambda: running() == 1, "the end of the first job")
        cluster.kill("slurmctld")
        cluster.restore_state()
        cluster.start_daemon("slurmctld")
        eventually(lambda: running() == 2, "a job of which nothing runs")
        process.send_signal(signal.SIGCONT)
        # Slurm would have asked its node later, and found that it failed.
        eventually(lambda: cluster.command(*cancelled) != before, "its cancellation")
        (tmp_path / "two").touch()

    assert process.returncode == 0


MEET = """
import os, socket, sys, time

rank, world, node = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["SLURMD_NODENAME"]
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(address) as server:
        nodes = [server.accept()[0].recv(100).decode() for _ in range(world - 1)]
    print("nodes", *sorted([node, *nodes]))
    print(f"loss={sys.argv[1]}", end="", flush=True)
    print("2026 saved", file=sys.stderr)
    print(flush=True)
    while os.path.exists("hold"):
        time.sleep(0.1)
else:
    for _ in range(600):
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(node.encode())
    if rank == 2:  # continues when the master has ended, until it is stopped
        os.execlp("sh", "sh", "-c", "trap 'touch stopped; exit' TERM; while :; do sleep 0.1; done")
"""


def write_gang(directory: Path, cpus: int) -> Path:
    """Write an experiment with one PyTorchJob of a master and two workers, which meet."""
    (directory / "meet.py").write_text(MEET)
    command = ["python3", "-u", "meet.py", "${trialParameters.learningRate}"]
    container = {"name": "pytorch", "image": "x", "command": command, "resources": {"requests": {"cpu": cpus}}}
    replica = {"restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    raw = an_experiment(maxTrialCount=1, parallelTrialCount=1)
    raw["spec"]["trialTemplate"]["primaryContainerName"] = "pytorch"
    raw["spec"]["trialTemplate"]["trialSpec"] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, **replica}, "Worker": {"replicas": 2, **replica}}},
    }
    path = directory / "experiment.json"
    path.write_text(json.dumps(raw))
    return path


@pytest.mark.parametrize("inside", [False, True], ids=["job", "steps"])
def test_a_gang_is_one_job_whose_pods_meet_across_nodes(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, inside: bool
) -> None:
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    before = set(cluster.command("squeue", "-h", "--states=all", "-o", "%i").split())
    done = katib("run", write_gang(tmp_path, 3), "--on", "slurm", cwd=tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / ".katib/trials").glob("*/*/*-master-0/pytorch.log")

    first, *others = (line for line in log.read_text().splitlines() if not line.startswith("srun: "))
    (trial,) = katib_json("trials", "demo", cwd=tmp_path)["items"]

    assert first == "nodes n1 n2 n3"
    assert sorted(others) == ["2026 saved", f"loss={trial['spec']['parameterAssignments'][0]['value']}"]
    assert (tmp_path / "stopped").exists()
    assert len(set(cluster.command("squeue", "-h", "--states=all", "-o", "%i").split()) - before) == (not inside)


@pytest.mark.parametrize("inside", [False, True], ids=["job", "steps"])
def test_a_gang_outlives_katib(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, inside: bool
) -> None:
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    (tmp_path / "hold").touch()
    file = write_gang(tmp_path, 1)
    argv, env = [*KATIB, "run", str(file), "--on", "slurm"], environment(**variables)
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as process:
        eventually(lambda: any("loss" in log.read_text() for log in tmp_path.rglob("pytorch.log")), "a loss")
        process.kill()
    (tmp_path / "hold").unlink()
    done = katib("run", file, "--on", "slurm", cwd=tmp_path, **variables)

    assert "succeeded" in done.stdout, done.stderr
    assert len(list((tmp_path / ".katib/trials").glob("*/*/*-master-0*"))) == 1


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
@pytest.mark.parametrize("inside", [False, True], ids=["job", "step"])
def test_a_launcher_of_mpi_starts_its_processes_on_the_nodes_of_its_job(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, inside: bool
) -> None:
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    program = f"echo $OMPI_COMM_WORLD_SIZE on $SLURMD_NODENAME; [ $OMPI_COMM_WORLD_RANK != 0 ] || {LOSS}"
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "sh", "-c", program]
    waits = {"name": "mpi", "image": "x", "resources": {"requests": {"cpu": 2}}}
    launcher = {"name": "mpi", "image": "x", "command": command}
    raw = an_experiment(maxTrialCount=1, parallelTrialCount=1)
    raw["spec"]["trialTemplate"]["primaryContainerName"] = "mpi"
    raw["spec"]["trialTemplate"]["trialSpec"] = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "spec": {
            "slotsPerWorker": 2,
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": {"containers": [launcher]}}},
                "Worker": {"replicas": 3, "template": {"spec": {"containers": [waits]}}},
            },
        },
    }
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps(raw))
    done = katib("run", file, "--on", "slurm", "--slurm-option", "ntasks-per-node=2", cwd=tmp_path, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = (tmp_path / ".katib/trials").rglob("mpi.log")
    lines = sorted(line for line in log.read_text().splitlines() if " on " in line)
    (hosts,) = (tmp_path / ".katib/trials").rglob("hostfile")

    assert lines == ["6 on n1", "6 on n1", "6 on n2", "6 on n2", "6 on n3", "6 on n3"]
    assert hosts.read_text() == "n1 slots=2\nn2 slots=2\nn3 slots=2\n"


@pytest.fixture
def allocation(cluster: SlurmCluster) -> Iterator[dict[str, str]]:
    """Return the variables of a process in an allocation of all nodes."""
    job = cluster.command(
        "sbatch", "--parsable", "--nodes=3", "--ntasks=12", "--output=/dev/null", "--wrap", "exec sleep 600"
    ).strip()
    eventually(lambda: cluster.command("squeue", "-h", "-t", "RUNNING", "-o", "%i").split() == [job], "the allocation")
    yield {**cluster.environment, "SLURM_JOB_ID": job}
    cluster.command("scancel", job)


def test_inside_an_allocation_trials_are_steps_on_its_nodes_and_outlive_katib(
    tmp_path: Path, cluster: SlurmCluster, allocation: dict[str, str]
) -> None:
    command = f"echo $KATIB_TRIAL_NAME >> {tmp_path}/ran; echo $SLURMD_NODENAME >> {tmp_path}/nodes; sleep 0.5; {LOSS}"
    file = write(tmp_path, command, maxTrialCount=30, parallelTrialCount=15)
    argv, env = [*KATIB, "run", str(file), "--on", "slurm"], environment(**allocation)
    with subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as process:
        eventually(lambda: len(words_of(tmp_path / "ran")) > 14, "fifteen steps")
        process.kill()
    done = katib("run", file, "--on", "slurm", cwd=tmp_path, **allocation)
    trials = katib_json("trials", "demo", cwd=tmp_path)["items"]

    assert done.returncode == 0, done.stderr
    assert {trial["status"]["conditions"][-1]["type"] for trial in trials} == {"Succeeded"}
    assert (len(words_of(tmp_path / "ran")), len(set(words_of(tmp_path / "ran")))) == (30, 30)
    assert set(words_of(tmp_path / "nodes")) == {"n1", "n2", "n3"}
    assert len(cluster.command("squeue", "-h", "-o", "%i").split()) == 1


@pytest.mark.parametrize("keeps", [False, True], ids=["anew", "checkpoint"])
@pytest.mark.parametrize("end", ["scancel", "time limit"])
def test_the_end_of_the_allocation_interrupts_the_run_and_fails_nothing(
    tmp_path: Path, cluster: SlurmCluster, end: str, keeps: bool
) -> None:
    saves = "trap 'exit 0' TERM; " if keeps else ""
    command = f"{saves}echo x >>began; echo loss=9; until test -e go; do sleep 0.1; done; {LOSS}"
    file = write(tmp_path, command, maxTrialCount=8, parallelTrialCount=6)
    options = ["--checkpoint"] if keeps else []
    argv = [*KATIB, "run", str(file), "--on", "slurm", *options]
    batch = ["sbatch", "--parsable", "--ntasks=4", "--nodes=1", "--mem=3G", f"--chdir={tmp_path}", "--output=out"]
    wrap = ["--wrap", f"exec env PYTHONPATH={tmp_path.cwd()} {shlex.join(argv)} 2>&1"]
    job = cluster.command(*batch, *wrap).strip()
    eventually(lambda: len(words_of(tmp_path / "began")) == 4, "four steps")
    if end == "scancel":
        cluster.command("scancel", job)
    else:
        cluster.command("scontrol", "update", f"JobId={job}", "EndTime=now+1")
    eventually(lambda: not cluster.command("squeue", "-h", "-o", "%i"), "the end of the allocation")
    states = [
        trial["status"]["conditions"][-1]["type"] for trial in katib_json("trials", "demo", cwd=tmp_path)["items"]
    ]
    (tmp_path / "go").touch()
    run(file, cluster, *options)
    trials = katib_json("trials", "demo", cwd=tmp_path)["items"]

    assert "interrupted: 0 of 8" in (tmp_path / "out").read_text()
    assert not {"Failed", "Succeeded", "Killed", "MetricsUnavailable"} & set(states)
    assert [trial["status"]["conditions"][-1]["type"] for trial in trials] == ["Succeeded"] * 8
    assert len(words_of(tmp_path / "began")) == 8 + 4
    readings = [katib_json("metrics", trial["metadata"]["name"], cwd=tmp_path) for trial in trials]
    assert sorted(map(len, readings)) == ([2] * 4 + [3] * 4 if keeps else [2] * 8)


STAND_IN = """#!/usr/bin/env python3
import os, pathlib, sys

name, words, found = pathlib.Path(sys.argv[0]).name, sys.argv[1:], {"mounts": [], "other": []}
if words == ["--help"]:
    sys.exit(print("  --container-image=IMAGE"))
if name == "apptainer":
    found["other"].append(words.pop(0))
    while words[0].startswith("-"):
        option = words.pop(0)
        found["mounts" if option == "--bind" else "other"].append(words.pop(0) if option == "--bind" else option)
    found["image"] = words.pop(0)
    os.environ.update({n.split("_", 1)[1]: v for n, v in os.environ.items() if n.startswith("APPTAINERENV_")})
else:
    given = dict(word[12:].split("=", 1) for word in words if word.startswith("--container-"))
    found |= {"image": given.get("image"), "mounts": given.get("mounts", "").split(",")}
    words = ["@srun@", *(word for word in words if not word.startswith("--container-"))]
for source, target in (mount.split(":") for mount in found["mounts"] if mount):
    if not os.path.exists(target):
        os.symlink(source, target)
os.environ["USED"] = f"{found['image']} {' '.join(found['other'])}".strip() if found["image"] else ""
os.execvp(words[0], words)
"""
"""Takes the options of Apptainer, or of srun with pyxis, and executes the command with the files of this machine."""


def stand_in(directory: Path, tool: str) -> Path:
    """Make a stand-in of a tool; return the folder to look for it in."""
    program = directory / "bin" / tool
    program.parent.mkdir()
    program.write_text(STAND_IN.replace("@srun@", shutil.which("srun") or ""))
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize(
    ("tool", "inside", "image"),
    [
        ("apptainer", False, "docker://ghcr.io/org/train:1 exec --nv"),
        ("srun", False, "ghcr.io#org/train:1"),
        ("srun", True, "ghcr.io#org/train:1"),
    ],
    ids=["apptainer", "pyxis-jobs", "pyxis-steps"],
)
def test_images_are_run_by_what_the_cluster_has_for_them(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, tool: str, inside: bool, image: str
) -> None:
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    path = environment()["PATH"]
    found = stand_in(tmp_path, tool)
    mounted = tmp_path / "mounted"
    command = f"echo $USED $A >{mounted}/file; cat {mounted}/file; {LOSS}"
    file = write(tmp_path, command, maxTrialCount=1, parallelTrialCount=1)
    raw = json.loads(file.read_text())
    spec = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", "emptyDir": {}}]
    spec["containers"][0] |= {
        "image": "ghcr.io/org/train:1",
        "env": [{"name": "A", "value": "x, y"}],
        "volumeMounts": [{"name": "v", "mountPath": str(mounted)}],
        "resources": {"limits": {"nvidia.com/gpu": "1"} if tool == "apptainer" else {"cpu": "1"}},
    }
    file.write_text(json.dumps(raw))
    options = ["run", file, "--on", "slurm", "--containers", "auto"]
    refused = katib(*options, cwd=tmp_path, **variables)
    done = katib(*options, cwd=tmp_path, **{**variables, "PATH": f"{found}:{path}"})
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = (tmp_path / ".katib/trials").rglob("training.log")

    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    assert "(pyxis)" in refused.stderr
    assert log.read_text().splitlines()[0] == f"{image} x, y"
    assert mounted.readlink().is_relative_to(tmp_path / ".katib/trials")


STOPPED = "trap 'touch stopped-$KATIB_TRIAL_NAME; exit' TERM; touch began-$KATIB_TRIAL_NAME; echo loss=5"


@pytest.mark.parametrize(
    ("inside", "containers"), [(False, "never"), (True, "never"), (True, "pyxis")], ids=["jobs", "steps", "pyxis-steps"]
)
def test_the_end_of_an_experiment_ends_running_trials_by_sigterm(
    tmp_path: Path, cluster: SlurmCluster, request: pytest.FixtureRequest, inside: bool, containers: str
) -> None:
    variables = request.getfixturevalue("allocation") if inside else cluster.environment
    if containers == "pyxis":
        variables = {**variables, "PATH": f"{stand_in(tmp_path, 'srun')}:{environment()['PATH']}"}
    both_began = "until set -- began-*; [ $# = 2 ]; do sleep 0.1; done"
    command = (
        f"cd {tmp_path}; if mkdir first; then {both_began}; {LOSS}; else {STOPPED}; while :; do sleep 0.1; done; fi"
    )
    goal = {"type": "minimize", "objectiveMetricName": "loss", "goal": 1.0}
    file = write(tmp_path, command, maxTrialCount=4, parallelTrialCount=3, objective=goal)
    done = katib("run", file, "--on", "slurm", "--containers", containers, cwd=tmp_path, **variables)

    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("stopped-*"))) == 2
