"""Fault injection: an experiment while `katib run` and the algorithm service are killed again and again.

`python -m benchmarks.survive [--algorithm NAME]... [--kills 20]` runs 30 short trials with each algorithm of the
product in a separate directory, three at a time. At random moments, some of them within its start, `katib run` is
killed (SIGKILL) and started again, or only its services are killed; now and then a running trial, or the experiment
with all running ones, is paused first and resumed later. Trials of algorithms that promote or exploit keep checkpoints
of many files, which every program verifies before it continues.

At the end it reads the store, the directories and the processes, and prints for each algorithm all differences from an
undisturbed run: the trials, their names, assignments and readings, the checkpoint and step from which they continued,
and leftovers. If suggestions do not depend on results, and with `--parallel 1` if they do not depend on times, an
undisturbed run in another directory must have the same trials.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import kill
from pathlib import Path
from signal import SIGKILL
from typing import Any

from katib.model.checkpoints import CheckpointOwner, parent_of, unneeded
from katib.model.names import trial_name
from katib.places.machine.pods.leases import DIRECTORY_VARIABLE as LEASES
from suggestion_services.algorithms import ENTRIES, ListedAlgorithm
from tests.support.cli import KATIB, environment, katib_here, katib_json, marked_processes, rows
from tests.support.experiments import a_choice, a_double, a_template, an_experiment, an_int
from tests.support.warm import popen

TRIALS, PARALLEL, KILLS, FILES, SEED = 30, 3, 20, 300, 1
LONGEST_SECONDS = 300.0
_NAME = "demo"
_SERVICES = "suggestion_services"
_BY_TIME = ("auto",)
"""Algorithms that depend on the duration of trials and suggestions."""

_LADDER = {"r_l": 9, "resource_name": "epochs", "suggestion_trial_dir": "/checkpoints"}
SETTINGS: dict[str, dict[str, object]] = {
    "tpe": {"n_startup_trials": 5},
    "multivariate-tpe": {"n_startup_trials": 5},
    "motpe": {"n_startup_trials": 5},
    "bayesianoptimization": {"n_initial_points": 5},
    "hyperband": {**_LADDER, "rounds": 0},
    "bohb": {**_LADDER, "n_startup_trials": 3},
    "asha": _LADDER,
    "pbt": {"suggestion_trial_dir": "/checkpoints", "n_population": 5},
    "nsga2": {"population_size": 5},
}
"""Settings of suggestion algorithms, for searches of this size."""

STOPPING: dict[str, dict[str, object]] = {
    "medianstop": {"min_trials_required": 3, "start_step": 2},
    "asha": {"min_resource": 1, "reduction_factor": 2},
    "hyperband": {"min_resource": 1, "max_resource": 4, "reduction_factor": 2},
    "median": {"n_startup_trials": 3},
    "patience": {"patience": 1, "min_delta": 0.3},
    "threshold": {"bound": 3, "step": 4},
}

# Prints readings that follow from its assignments and the steps before; verifies the checkpoint that it finds, of which
# all files have to match, and publishes one of its own atomically.
PROGRAM = """
import hashlib, json, os, shutil, sys, time, zlib
from pathlib import Path

FILES, own = int(sys.argv[1]), os.environ["KATIB_TRIAL_NAME"]
point = dict(word.split("=", 1) for word in sys.argv[2:])
folder = os.environ.get("KATIB_CHECKPOINT_DIR")
folder = Path(folder) if folder else None

def note(what, **more):
    line = "\\n" + json.dumps({"trial": own, "point": point, **more}) + "\\n"
    file = os.open(what, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)

def digest(model):
    files = sorted(model.iterdir())
    return len(files), hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

def number(text):
    try:
        return float(text)
    except ValueError:
        return zlib.crc32(text.encode()) / 2**32

chain = []
if folder and (folder / "current").exists():
    current = json.loads((folder / "current").read_text())
    chain = current["chain"]
    if digest(folder / current["model"]) != (FILES, current["sum"]):
        note("faults", fault="half a checkpoint", chain=chain)
elif folder and any(folder.iterdir()):
    note("faults", fault="a checkpoint without its beginning", files=sorted(os.listdir(folder))[:3])
is_trained = bool(chain) and chain[-1][0] == own
before = chain[:-1] if is_trained else chain
done = sum(steps for _, steps in before)
steps = int(point["epochs"]) - done if "epochs" in point else 5
height = sum((number(value) - 0.3) ** 2 for name, value in point.items() if name != "epochs")
values = [height + 1 / step for step in range(done + 1, done + steps + 1)]
note("starts", before=before, steps=steps, values=values)
while os.path.exists("hold"):
    time.sleep(0.02)
for step, value in enumerate(values, done + 1):
    if not is_trained:
        time.sleep(0.08)
    print(f"katib-step={step} loss={value!r} cost={1 - value / 9!r}", flush=True)
if folder and not is_trained:
    new, model = folder / f"{own}.new", folder / own
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(model, ignore_errors=True)
    new.mkdir()
    for number in range(FILES):
        (new / f"part{number:03}").write_text(f"{own} {number} " * 50)
    _, checksum = digest(new)
    new.rename(model)
    chain = [*before, [own, steps]]
    (folder / "current.new").write_text(json.dumps({"chain": chain, "model": own, "sum": checksum}))
    os.replace(folder / "current.new", folder / "current")
    for other in folder.iterdir():
        if other.is_dir() and other != model:
            shutil.rmtree(other)
note("ends", before=before, steps=steps)
"""


@dataclass(frozen=True)
class Case:
    """An algorithm with its parameters of the test."""

    entry: ListedAlgorithm
    trials: int = TRIALS
    parallel: int = PARALLEL

    @property
    def title(self) -> str:
        return f"{'early stopping ' * self.entry.info.early_stopping}{self.entry.info.name}"

    @property
    def has_rungs(self) -> bool:
        return not self.entry.info.early_stopping and "resource_name" in SETTINGS.get(self.entry.info.name, {})

    @property
    def keeps_checkpoints(self) -> bool:
        return self.has_rungs or self.title == "pbt"

    @property
    def repeats(self) -> bool:
        """Whether an undisturbed run has the same trials."""
        if self.entry.info.early_stopping:
            return False
        return not self.entry.info.reads_history or (self.parallel == 1 and self.title not in _BY_TIME)

    def experiment(self) -> dict[str, Any]:
        info = self.entry.info
        given = (STOPPING if info.early_stopping else SETTINGS).get(info.name, {})
        settings = [{"name": name, "value": str(value)} for name, value in given.items()]
        chosen = {"algorithmName": info.name, "algorithmSettings": settings}
        spec: dict[str, Any] = {"maxTrialCount": self.trials, "parallelTrialCount": self.parallel}
        if info.early_stopping:
            spec["earlyStopping"], chosen = chosen, {"algorithmName": "random"}
        spec["algorithm"] = chosen
        if info.name in ("motpe", "nsga2"):
            spec["objective"] = {"objectives": [{"name": name, "type": "minimize"} for name in ("loss", "cost")]}
        if info.graph_fields:
            sizes = a_choice("filter_size", ["1", "3", "5"])
            operations = [{"operationType": kind, "parameters": [sizes]} for kind in ("convolution", "pooling")]
            graph = {"numLayers": 3, "inputSizes": [8, 8, 1], "outputSizes": [4]}
            spec |= {"parameters": None, "nasConfig": {"graphConfig": graph, "operations": operations}}
            names: Sequence[str] = info.assigns
        else:
            step = {"step": "0.1"} if info.name == "grid" else {}
            parameters = [a_double("x", low="0", high="0.9", **step), an_int("k", low="1", high="3")]
            parameters += [an_int("epochs", low="1", high="9")] if self.has_rungs else []
            names = [parameter["name"] for parameter in parameters]
            spec["parameters"] = parameters
        words = {f"p{number}": name for number, name in enumerate(names)}
        template = a_template("", words)
        job = template["trialSpec"]["spec"]
        job["backoffLimit"] = 0
        (container,) = job["template"]["spec"]["containers"]
        given_words = [f"{name}=${{trialParameters.{word}}}" for word, name in words.items()]
        container["command"] = ["python", "-I", "-S", "program.py", str(FILES), *given_words]
        container["resources"] = {"requests": {"cpu": "0.5"}}
        return an_experiment(name=_NAME, trialTemplate=template, **spec)


@dataclass
class FaultyRun:
    """An experiment in a separate directory, and the faults injected into it."""

    case: Case
    directory: Path
    draw: random.Random
    marker: str = field(init=False)
    process: subprocess.Popen[bytes] | None = None
    done: Counter[str] = field(default_factory=Counter)
    paused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.marker = f"SURVIVE={self.directory}"
        self.directory.mkdir()
        (self.directory / "program.py").write_text(PROGRAM)
        (self.directory / "demo.json").write_text(json.dumps(self.case.experiment()))

    def start(self) -> None:
        name, value = self.marker.split("=", 1)
        with (self.directory / "katib.log").open("ab") as log:
            self.process = popen(
                [*KATIB, "run", "demo.json", "-q"],
                cwd=self.directory,
                env=environment(**{name: value, LEASES: str(self.directory / "leases")}),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_over(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def noted(self, what: str) -> list[dict[str, Any]]:
        """Return the programs' notes: faults, starts or ends; half a line is from a killed one."""
        file, found = self.directory / what, []
        for line in file.read_text().splitlines() if file.exists() else ():
            with suppress(json.JSONDecodeError):
                found.append(json.loads(line))
        return found

    def disturb(self, kills: int) -> None:
        """Run to the end; kill `katib` and its services until all kills are done, or everything has ended."""
        self.start()
        until = time.monotonic() + LONGEST_SECONDS
        # Another trial takes the place of a paused one, so the next suggestion would learn from other trials.
        first = "katib" if self.case.repeats and self.case.entry.info.reads_history else "katib and pause"
        kinds = ([first, "service", "katib", "start", "katib"] * kills)[:kills]
        self.draw.shuffle(kinds)
        for number, what in enumerate(kinds, 1):
            begun, hold = len(self.noted("starts")), self.directory / "hold"
            if what == "katib and pause":
                hold.touch()
            while what != "start" and len(self.noted("starts")) == begun and not self.is_over:
                if time.monotonic() > until:
                    return
                time.sleep(0.01)
                if number % 3 == 0 or _NAME in self.paused:
                    self.resume()
            is_late = len({end["trial"] for end in self.noted("ends")}) > number * self.case.trials // (kills + 2)
            if what == "katib and pause":
                self.pause()
                hold.unlink()
            time.sleep(self.draw.uniform(0, 1.2 if what == "start" else 0.05 if is_late else 0.4))
            if self.is_over:
                return
            self.kill_one(what)
        while not self.is_over and time.monotonic() < until:
            self.resume()
            time.sleep(0.2)

    def kill_one(self, what: str) -> None:
        assert self.process is not None
        if what == "service":
            pids = [pid for pid, command in marked_processes(self.marker) if _SERVICES in command]
            self.done["services"] += bool(pids)
            for pid in pids:
                with suppress(ProcessLookupError):
                    kill(pid, SIGKILL)
        if what != "service" or not pids:
            self.process.kill()
            self.process.wait()
            self.done["katib"] += 1
            time.sleep(self.draw.choice((0, 0, 0.2)))
            self.start()

    def ask(self, what: str, name: str) -> subprocess.CompletedProcess[str]:
        return katib_here(what, name, "--data-dir", ".katib", cwd=self.directory)

    def pause(self) -> None:
        """Pause the last started trial, if it runs, and every second time the experiment with all running ones."""
        ended = {end["trial"] for end in self.noted("ends")} | self.paused
        running = [start["trial"] for start in self.noted("starts") if start["trial"] not in ended]
        if not running:
            return
        name = _NAME if self.done["pauses"] % 2 else running[-1]
        for _ in range(20):
            asked = self.ask("pause", name)
            if asked.returncode == 0:
                self.paused.add(name)
                self.done["pauses"] += 1
            if asked.returncode == 0 or "has ended" in asked.stderr:
                return
            time.sleep(0.05)  # a `katib run` that has just started answers a moment after its programs run

    def resume(self) -> None:
        """Resume paused trials, as far as a `katib run` answers."""
        for name in sorted(self.paused):
            asked = self.ask("resume", name)
            if asked.returncode == 0 or "has ended" in asked.stderr:
                self.paused.discard(name)

    def end(self) -> None:
        """Kill the remaining processes of this run, found by its mark."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid, _ in marked_processes(self.marker):
            with suppress(ProcessLookupError):
                kill(pid, SIGKILL)

    # --- results ------------------------------------------------------------------------------------------------------

    def stored(self, *what: str) -> dict[str, Any]:
        """Return objects of the data directory, whatever servers run on this machine."""
        found: dict[str, Any] = katib_json("get", *what, "--data-dir", ".katib", cwd=self.directory)
        return found

    def trials(self) -> dict[str, dict[str, Any]]:
        return {trial["metadata"]["name"]: trial for trial in self.stored("trials")["items"]}

    def faults(self, reference: FaultyRun | None) -> Iterator[str]:
        """Yield the differences from the expected state, one line each."""
        assert self.process is not None
        if self.process.poll() != 0:
            last = (self.directory / "katib.log").read_text().strip().rpartition("\n")[2]
            yield f"katib run ended with {self.process.poll()}: {last}"
        yield from self._left()
        if not (self.directory / ".katib").exists():
            return
        trials = self.trials()
        experiment = self.stored("experiment", _NAME)
        yield from self._wrong_counts(experiment, trials)
        yield from self._wrong_programs(trials)
        yield from self._wrong_assignments(trials)
        if self.case.keeps_checkpoints:
            yield from self._wrong_checkpoints(trials)
        if reference is not None:
            expected = {name: (_point(trial), parent_of(_labels(trial))) for name, trial in reference.trials().items()}
            found = {name: (_point(trial), parent_of(_labels(trial))) for name, trial in trials.items()}
            if differ := [name for name in expected if found.get(name) != expected[name]]:
                yield f"{len(differ)} trials are not those of an undisturbed run"

    def _wrong_counts(self, experiment: dict[str, Any], trials: dict[str, dict[str, Any]]) -> Iterator[str]:
        """Check that the trials are complete and succeeded, and that experiment and suggestion count them."""
        names = {trial_name("default", _NAME, number) for number in range(self.case.trials)}
        if missing := names - trials.keys():
            yield f"{len(missing)} trials missing"
        if more := trials.keys() - names:
            yield f"{len(more)} trials too many"
        states = Counter(_state(trial) for trial in trials.values())
        ends = {"Succeeded", "EarlyStopped"} if self.case.entry.info.early_stopping else {"Succeeded"}
        if wrong := states.keys() - ends:
            yield ", ".join(f"{states[state]} trials {state}" for state in sorted(wrong))
        if _state(experiment) != "Succeeded":
            yield f"the experiment is {_state(experiment)}"
        counted = sum(experiment["status"].get(f"trials{state}", 0) for state in ends)
        if (experiment["status"].get("trials"), counted) != (self.case.trials, self.case.trials):
            yield f"it counts {experiment['status'].get('trials')} trials, {counted} of them ended well"
        suggestion = self.stored("suggestion", _NAME)["status"]
        unused = {given["name"] for given in suggestion.get("suggestions", ())} - trials.keys()
        if suggestion["suggestionCount"] != self.case.trials or unused:
            yield f"{suggestion['suggestionCount']} suggestions, {len(unused)} not used"

    def _left(self) -> Iterator[str]:
        until = time.monotonic() + 30
        while (left := marked_processes(self.marker)) and time.monotonic() < until:
            time.sleep(0.05)
        yield from (f"process left: {command[:80]}" for _, command in left)
        for path in (self.directory / "leases").glob("*.lock"):
            with path.open() as file, suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no process holds its content
                continue
            yield f"lease left: {path.name}"
        for path in (self.directory / ".katib" / "checkpoints").glob("**/.*"):
            yield f"left of a copy: {path.name}"

    def _wrong_programs(self, trials: dict[str, dict[str, Any]]) -> Iterator[str]:
        """Check that programs ran with their trials' assignments, and readings are those of one whole run."""
        yield from (f"{fault['trial']}: {fault['fault']}" for fault in self.noted("faults"))
        starts = self.noted("starts")
        if strange := {start["trial"] for start in starts} - trials.keys():
            yield f"{len(strange)} programs without a trial"
        if len(starts) > len(trials) + self.case.parallel * (self.done["katib"] + self.done["pauses"]):
            yield f"{len(starts)} programs for {len(trials)} trials"
        readings: dict[str, list[float]] = {}
        query = "select trial_name, value from observation_logs where metric_name = 'loss' order by time, id"
        for name, value in rows(self.directory / ".katib", query):
            readings.setdefault(name, []).append(float(value))
        for name, trial in trials.items():
            own = [start for start in starts if start["trial"] == name]
            if not own:
                yield f"{name}: never ran"
                continue
            if any(start["point"] != _point(trial) for start in own):
                yield f"{name}: ran with other assignments than its own"
            if any(start["before"] != own[0]["before"] for start in own):
                yield f"{name}: went on from different checkpoints"
            values, found = own[-1]["values"], readings.get(name, [])
            if found != (values[: len(found)] if found and _state(trial) == "EarlyStopped" else values):
                yield f"{name}: {len(found)} readings that are not the {len(values)} of its program"
            metrics = trial["status"].get("observation", {}).get("metrics", ())
            value = next((one["min"] for one in metrics if one["name"] == "loss"), "nan")
            if found and float(value) != min(found):
                yield f"{name}: its value is {value}, the least reading {min(found)}"

    def _wrong_assignments(self, trials: dict[str, dict[str, Any]]) -> Iterator[str]:
        """Check that no point is tried twice except by a continuation, with its parent's values and more epochs."""
        info = self.case.entry.info
        parents = {name: parent for name, trial in trials.items() if (parent := parent_of(_labels(trial)))}
        if not info.graph_fields and self.case.title != "pbt":
            first = Counter(str(_point(trial)) for name, trial in trials.items() if name not in parents)
            if twice := [point for point, count in first.items() if count > 1]:
                yield f"{len(twice)} points tried twice"
        yield from (f"{name}: its parent does not exist" for name, parent in parents.items() if parent not in trials)
        if not self.case.has_rungs:
            return
        if twice := [parent for parent, count in Counter(parents.values()).items() if count > 1]:
            yield f"{len(twice)} trials promoted twice"
        for name, parent in parents.items():
            own, earlier = dict(_point(trials[name])), dict(_point(trials[parent]))
            if int(own.pop("epochs")) <= int(earlier.pop("epochs")) or own != earlier:
                yield f"{name}: does not continue {parent}"

    def _wrong_checkpoints(self, trials: dict[str, dict[str, Any]]) -> Iterator[str]:
        """Check that each trial continued its parent's whole training, and exactly the needed checkpoints exist."""
        chains: dict[str, list[Any]] = {}
        for start in self.noted("starts"):
            chains[start["trial"]] = [*start["before"], [start["trial"], start["steps"]]]
        for name, trial in trials.items():
            parent = parent_of(_labels(trial))
            if name in chains and chains[name][:-1] != (chains.get(parent) if parent else []):
                yield f"{name}: did not continue from where {parent or 'nothing'} had ended"
        folder = self.directory / ".katib" / "checkpoints" / "default" / _NAME
        kept = {path.name for path in folder.iterdir()}
        owners = [CheckpointOwner(name, _labels(trial), True, True) for name, trial in trials.items()]
        best = self.stored("experiment", _NAME)["status"].get("currentOptimalTrial", {})
        needed = trials.keys() - set(unneeded(owners)) | {best.get("bestTrialName", "none")}
        if kept != needed:
            yield f"checkpoints: {len(needed - kept)} missing, {len(kept - needed)} too many"
        for name in kept & needed:
            current = json.loads((folder / name / "current").read_text())
            if current["chain"] != chains.get(name) or len(list((folder / name / name).iterdir())) != FILES:
                yield f"{name}: its checkpoint is not what it left"


def _state(found: dict[str, Any]) -> str:
    conditions = found.get("status", {}).get("conditions", [])
    return next((one["type"] for one in reversed(conditions) if one["status"] == "True"), "without a state")


def _point(trial: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in trial["spec"]["parameterAssignments"]}


def _labels(trial: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = trial["metadata"].get("labels", {})
    return labels


def survive(case: Case, kills: int, seed: int, place: Path, say: Callable[[str], object]) -> list[str]:
    """Run a case, undisturbed first if that determines the result; print a line; return the faults."""
    title = case.title.replace(" ", "-")
    reference = None
    if case.repeats:
        reference = FaultyRun(case, place / f"{title}-undisturbed", random.Random(seed))
        reference.disturb(0)
    run = FaultyRun(case, place / title, random.Random(f"{seed} {case.title}"))
    began = time.perf_counter()
    try:
        run.disturb(kills)
        seconds = time.perf_counter() - began
        faults = list(run.faults(reference))
    finally:
        run.end()
        if reference is not None:
            reference.end()
    trials = run.trials().values() if (run.directory / ".katib").exists() else ()
    promoted = sum(bool(parent_of(_labels(trial))) for trial in trials)
    stopped = sum(_state(trial) == "EarlyStopped" for trial in trials)
    did = f"{run.done['katib']:>6}{run.done['services']:>10}{run.done['pauses']:>8}{len(run.noted('starts')):>10}"
    what = "; ".join(faults) or "as without kills"
    say(f"{case.title:<27}{did}{promoted:>10}{stopped:>9}{seconds:>9.0f}  {what}\n")
    return faults


def cases(names: Sequence[str], trials: int = TRIALS, parallel: int = PARALLEL) -> list[Case]:
    """Return the cases of all algorithms that are installed, or of those with these names."""
    every = [Case(entry, trials, parallel) for entry in ENTRIES if entry.is_installed]
    return [case for case in every if not names or case.title in names]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if there is a difference from an undisturbed run."""
    parser = argparse.ArgumentParser(prog="benchmarks.survive", description=__doc__)
    parser.add_argument("--algorithm", action="append", default=[], help="such as asha, or 'early stopping asha'")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--parallel", type=int, default=PARALLEL)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--keep", type=Path, help="keep the directories of the runs in this one")
    options = parser.parse_args(arguments)

    def say(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    columns = f"{'katib':>6}{'services':>10}{'pauses':>8}{'programs':>10}{'promoted':>10}{'stopped':>9}{'seconds':>9}"
    say(f"{'':<27}{columns}\n")
    with tempfile.TemporaryDirectory() as directory:
        place = options.keep or Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        found = [
            survive(case, options.kills, options.seed, place, say)
            for case in cases(options.algorithm, options.trials, options.parallel)
        ]
    return int(any(found) or not found)


if __name__ == "__main__":
    sys.exit(main())
