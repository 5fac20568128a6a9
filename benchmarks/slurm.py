"""Trials as jobs of a Slurm cluster of three nodes on this machine, beside a bare loop of `sbatch` and `squeue`.

`jobs` (the default) prints the seconds of 200 trials that do nothing, both ways in turns, the calls of Slurm's commands
and the files left by a trial; then the seconds of submitit with Optuna, if they are installed. `steps` does the same
inside an allocation of all nodes, beside bare steps of `srun`, and prints how many of these run at once and how long a
place is empty between two of them. `survive` kills katib 20 times, and slurmd and slurmctld 10 times each, while 200
trials run, and prints their outcome; it fails unless there are 200 trials with their values and no job. `follow` prints
the cost of following 2,000 pending jobs for a minute: commands in 5 seconds, the share of a core and the growth of
memory.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from benchmarks.support import memory_mb
from tests.support.experiments import an_experiment
from tests.support.slurm import NODES, SlurmCluster, slurm_cluster, why_not

T = TypeVar("T")
TRIALS, PARALLEL, ROUNDS = 200, 12, 3
COMMAND = "echo loss=${trialParameters.learningRate}"
PROGRAMS = ("sbatch", "squeue", "scancel", "srun")
SEED, LAST_SECONDS = 1, 60.0
"""For `survive`: the order of kills; maximum time for which Slurm shows ended jobs."""

PENDING, FOLLOWED_SECONDS = 2_000, 60.0
_PAUSE_SECONDS = 0.1
_SHIM = """#!/bin/sh
echo {name} $(date +%s.%N) >>{log}
{program} "$@"
code=$?
echo /{name} $(date +%s.%N) >>{log}
exit $code
"""


def bare_loop(cluster: SlurmCluster, directory: Path) -> float:
    """Return the seconds of a loop that keeps as many jobs in Slurm as katib does."""
    environment = {**os.environ, **cluster.environment}
    began, left, running = time.perf_counter(), TRIALS, set[str]()
    while left or running:
        while left and len(running) < PARALLEL:
            argv = ["sbatch", "--parsable", f"--output={directory}/%j.log", "--cpus-per-task=1", "--mem=64M"]
            script = "#!/bin/sh\necho loss=1\n"
            done = subprocess.run(argv, env=environment, input=script, capture_output=True, text=True, check=True)
            running.add(done.stdout.strip())
            left -= 1
        running &= set(cluster.command("squeue", "--me", "-h", "-o", "%i").split())
        time.sleep(_PAUSE_SECONDS)
    return time.perf_counter() - began


def with_submitit(cluster: SlurmCluster, directory: Path) -> float | None:
    """Return the seconds of Optuna with submitit, as many jobs at once; None if they are not installed."""
    try:
        import optuna
        import submitit
    except ImportError:
        return None
    os.environ |= cluster.environment
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("submitit").setLevel(logging.ERROR)  # about `sacct`, which this cluster lacks
    began = time.perf_counter()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler())
    executor = submitit.SlurmExecutor(directory / "submitit")
    executor.update_parameters(cpus_per_task=1, mem="300M", time=10)
    left, running = TRIALS, list[tuple[Any, Any]]()
    while left or running:
        while left and len(running) < PARALLEL:
            trial = study.ask()
            running.append((trial, executor.submit(float, trial.suggest_float("lr", 0.01, 0.1))))
            left -= 1
        for trial, job in running[:]:
            if job.done():
                study.tell(trial, job.result())
                running.remove((trial, job))
        time.sleep(_PAUSE_SECONDS)
    return time.perf_counter() - began


def bare_steps(environment: Mapping[str, str], directory: Path) -> float:
    """Return the seconds of bare steps, as many at once as katib has trials."""
    environment = counting(environment, directory)

    def step(number: int) -> None:
        options = [
            "--ntasks=1",
            "--nodes=1",
            "--exact",
            "--cpus-per-task=1",
            "--mem=64M",
            f"--output={directory}/{number}.log",
        ]
        subprocess.run(["srun", *options, "sh", "-c", "echo loss=1"], env=environment, capture_output=True, check=True)

    began = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(step, range(TRIALS)))
    return time.perf_counter() - began


def experiment(directory: Path, trials: int, parallel: int, command: str = COMMAND) -> Path:
    raw = an_experiment(command=command, maxTrialCount=trials, parallelTrialCount=parallel)
    template = raw["spec"]["trialTemplate"]["trialSpec"]["spec"]["template"]
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "64Mi"}}
    path = directory / "experiment.json"
    path.write_text(json.dumps(raw))
    return path


def counting(base: Mapping[str, str], directory: Path) -> Mapping[str, str]:
    """Return an environment that records each call of a Slurm program, and its end, in the file `calls`."""
    shims = directory / "shims"
    shims.mkdir()
    for name in PROGRAMS:
        program = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (shims / name).write_text(_SHIM.format(name=name, program=program, log=directory / "calls"))
        (shims / name).chmod(0o755)
    return {**base, "PATH": f"{shims}:{os.environ['PATH']}"}


def katib_run(base: Mapping[str, str], directory: Path) -> tuple[float, Counter[str], float]:
    """Return the seconds of `katib run`, the calls of each Slurm program, and the files of a trial."""
    argv = [
        sys.executable,
        "-m",
        "katib",
        "run",
        str(experiment(directory, TRIALS, PARALLEL)),
        "--on",
        "slurm",
        "-q",
    ]
    environment = counting(base, directory)
    began = time.perf_counter()
    subprocess.run(argv, cwd=directory, env=environment, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    files = [path for path in (directory / ".katib/trials").rglob("*") if path.is_file()]
    return seconds, Counter(name for name, _ in _calls(directory) if name in PROGRAMS), len(files) / TRIALS


def _calls(directory: Path) -> list[tuple[str, float]]:
    """Return the calls, with their times in seconds."""
    lines = (directory / "calls").read_text().splitlines()
    return [(name, float(at)) for name, at in map(str.split, lines)]


def _pace(directory: Path) -> float:
    """Return the seconds between the first and the last start of a step or a job."""
    times = [at for name, at in _calls(directory) if name in {"srun", "sbatch"}]
    return max(times) - min(times)


def _slots(directory: Path) -> tuple[float, float]:
    """Return the number of concurrent steps until the last one starts, and the milliseconds between two of a place."""
    steps = sorted((at, name) for name, at in _calls(directory) if name in {"srun", "/srun"})
    last = max(at for at, name in steps if name == "srun")
    running, ended, empty, area = 0, list[float](), list[float](), 0.0
    for (at, name), (until, _) in pairwise(steps):
        if name == "srun" and ended:
            empty.append(at - ended.pop(0))
        elif name == "/srun":
            ended.append(at)
        running += 1 if name == "srun" else -1
        area += running * (min(until, last) - min(at, last))
    return area / (last - steps[0][0]), 1000 * median(empty)


def jobs(cluster: SlurmCluster) -> None:
    base = {**os.environ, **cluster.environment}
    in_turns(base, partial(bare_loop, cluster))
    with tempfile.TemporaryDirectory() as directory:
        seconds = with_submitit(cluster, Path(directory))
    print("submitit with Optuna: " + ("not installed" if seconds is None else f"{seconds:.1f} s"))


def steps(cluster: SlurmCluster) -> None:
    allocate = ("sbatch", "--parsable", "--nodes=3", "--ntasks=12", "--output=/dev/null", "--wrap", "exec sleep 3600")
    job = cluster.command(*allocate).strip()
    while not cluster.command("squeue", "-h", "-t", "RUNNING"):
        time.sleep(_PAUSE_SECONDS)
    base = {**os.environ, **cluster.environment, "SLURM_JOB_ID": job}
    in_turns(base, partial(bare_steps, base))


def in_turns(base: Mapping[str, str], rival: Callable[[Path], float]) -> None:
    ratios = []
    with tempfile.TemporaryDirectory() as compiled:
        base = {**base, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}  # as in an installation
        for number in range(ROUNDS + 1):
            with tempfile.TemporaryDirectory() as bare, tempfile.TemporaryDirectory() as ours:
                loop, of_loop = _timed(partial(rival, Path(bare)))
                (seconds, calls, files), of_katib = _timed(partial(katib_run, base, Path(ours)))
                paces = "" if not (Path(bare) / "calls").exists() else _paces(Path(bare), Path(ours))
            if not number:
                continue  # with the first one modules are compiled
            named = ", ".join(f"{count} {name}" for name, count in calls.items())
            ratios.append(seconds / loop)
            print(f"{TRIALS} trials, {PARALLEL} at a time: bare {loop:.1f} s, katib {seconds:.1f} s", end="")
            print(
                f", {ratios[-1]:.2f} times{paces}; processor of the loop or katib, with the commands of Slurm ", end=""
            )
            print(f"{of_loop:.1f} and {of_katib:.1f} s; {named}; files of a trial: {files:g}", flush=True)
    print(f"median of {ROUNDS}: {median(ratios):.2f} times")


def _timed(run: Callable[[], T]) -> tuple[T, float]:
    """Return a function's result, and the processor time of the processes that it has waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found, after = run(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return found, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _paces(bare: Path, ours: Path) -> str:
    first, second = _pace(bare), _pace(ours)
    (many, empty), (ours_many, ours_empty) = _slots(bare), _slots(ours)
    return (
        f"; between the first and the last start {first:.1f} and {second:.1f} s, {second / first:.2f} times, with "
        f"{many:.1f} and {ours_many:.1f} steps at once and {empty:.0f} and {ours_empty:.0f} ms between two of a place"
    )


def follow(cluster: SlurmCluster) -> None:
    cluster.command("scontrol", "update", "PartitionName=main", "State=DOWN")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        argv = [sys.executable, "-m", "katib", "run", str(experiment(directory, PENDING, PENDING)), "--on", "slurm"]
        environment = counting({**os.environ, **cluster.environment}, directory)
        with subprocess.Popen(argv, cwd=directory, env=environment, stdout=subprocess.DEVNULL) as process:
            while len(cluster.command("squeue", "-h", "-o", "%i").split()) < PENDING:
                time.sleep(1)
            time.sleep(10)
            calls = directory / "calls"
            before, ticks, memory = len(calls.read_text().splitlines()), _ticks(process.pid), memory_mb(process.pid)
            time.sleep(FOLLOWED_SECONDS)
            called = (len(calls.read_text().splitlines()) - before) * 5 / FOLLOWED_SECONDS
            share = (_ticks(process.pid) - ticks) / os.sysconf("SC_CLK_TCK") / FOLLOWED_SECONDS
            print(f"{PENDING} pending jobs: {called:.2f} commands in 5 s, {share:.1%} of a core with the commands,")
            print(f"  memory {memory:.0f} MB, {memory_mb(process.pid):.0f} MB a minute later")
            process.kill()
    cluster.command("scancel", "--user=root")


def survive(cluster: SlurmCluster) -> None:
    base = {**os.environ, **cluster.environment}
    draw = random.Random(SEED)
    kills = ["katib"] * 20 + ["slurmctld"] * 10 + [node for _, node in zip(range(10), cycle(NODES), strict=False)]
    draw.shuffle(kills)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ran = directory / "ran"
        command = f"sleep 0.5; {COMMAND}; echo $KATIB_TRIAL_NAME >>{ran}"
        file = experiment(directory, TRIALS, PARALLEL, command)
        argv = [sys.executable, "-m", "katib", "run", str(file), "--on", "slurm", "-q"]
        start = partial(subprocess.Popen, argv, cwd=directory, env=base)
        began, process = time.perf_counter(), start()
        for number, kill in enumerate(kills, 1):
            due = number * TRIALS // (len(kills) + 2)
            while len(_words(ran)) < due and process.poll() is None:
                _as_administrator(cluster)
                time.sleep(_PAUSE_SECONDS)
            if kill == "katib":
                process.kill()
                process.wait()
                process = start()
            else:
                cluster.kill(kill)
                time.sleep(draw.random())
                cluster.start_daemon(kill)
        while process.poll() is None:
            _as_administrator(cluster)
            time.sleep(1)
        code, seconds = process.returncode, time.perf_counter() - began
        argv = [sys.executable, "-m", "katib", "trials", "demo", "-o", "json"]
        shown = subprocess.run(argv, cwd=directory, env=base, check=True, capture_output=True)
        trials = json.loads(shown.stdout)["items"]
        wrong = [trial for trial in trials if not _has_its_value(trial)]
        deadline = time.monotonic() + LAST_SECONDS
        while (left := cluster.command("squeue", "-h", "-o", "%i %T").split("\n")[:-1]) and time.monotonic() < deadline:
            time.sleep(1)
        programs, ends = len(cluster.trial_processes()), Counter(_words(ran))
        killed = ", ".join(f"{count} of {what}" for what, count in Counter(kills).items())
        twice = sum(ends.values()) - len(ends)
        print(f"{killed} killed in {seconds:.0f} s; katib ended with {code}: {len(trials)} trials,")
        print(f"  {len(trials) - len(wrong)} with their values; {len(ends)} programs ended, {twice} a second time;")
        print(f"  jobs left: {len(left)}, programs left: {programs}")
        if (code, len(trials), wrong, len(left), programs) != (0, TRIALS, [], 0, 0):
            causes = [json.dumps(trial["status"]["conditions"][-1]) for trial in wrong]
            sys.exit("\n".join(["not what it should be", *left, *causes]))


def _as_administrator(cluster: SlurmCluster) -> None:
    """Return drained nodes to service; the controller may be unavailable, and the call is repeated."""
    with suppress(subprocess.SubprocessError):
        cluster.resume_nodes()


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _has_its_value(trial: Mapping[str, Any]) -> bool:
    metrics = trial["status"].get("observation", {}).get("metrics", [])
    return [metric["latest"] for metric in metrics] == [trial["spec"]["parameterAssignments"][0]["value"]]


def _ticks(pid: int) -> int:
    """Return the processor time of a process and of the children that it has waited for."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="jobs", choices=("jobs", "steps", "survive", "follow"))
    what = parser.parse_args().what
    if reason := why_not():
        sys.exit(f"no Slurm: {reason}")
    with slurm_cluster() as cluster:
        {"jobs": jobs, "steps": steps, "survive": survive, "follow": follow}[what](cluster)


if __name__ == "__main__":
    main()
