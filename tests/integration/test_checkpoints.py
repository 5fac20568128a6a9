"""Checkpoints of trials on one machine: handed from parent to child, whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from katib.model.decoding import decode_stored
from katib.model.files import checkpoint_folders
from katib.model.files.checkpoint_folders import (
    CheckpointError,
    CheckpointGoneError,
    provide_checkpoint,
    remove_checkpoint,
)
from katib.model.names import GENERATION_LABEL, PARENT_LABEL
from katib.model.types import Experiment, Trial
from katib.places.machine import open_engine
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import failure_of, is_completed, state_of
from suggestion_services.pbt.population import MEMBER_LABEL, STEP_LABEL
from tests.support.cli import a_server, katib, katib_here, katib_json
from tests.support.experiments import an_experiment
from tests.support.golden import Golden
from tests.support.modes import bound_by_modes
from tests.support.waiting import eventually

NS = "default"
REPORT = "echo loss=${trialParameters.learningRate}"
# What the trial wrote is read through the path that the template knows, and through the variable.
REMEMBER = f'cat /checkpoints/history 2>/dev/null; echo $KATIB_TRIAL_NAME >> "$KATIB_CHECKPOINT_DIR/history"; {REPORT}'


def an_algorithm(place: str = "/checkpoints/", **changed: object) -> dict[str, Any]:
    settings = {"suggestion_trial_dir": place, "n_population": 5, "random_state": 1, **changed}
    return {
        "algorithmName": "pbt",
        "algorithmSettings": [{"name": name, "value": str(value)} for name, value in settings.items()],
    }


def a_training(command: str = REMEMBER, place: str = "/checkpoints/", **spec: Any) -> dict[str, Any]:
    return an_experiment(command=command, **{"algorithm": an_algorithm(place), "maxTrialCount": 12, **spec})


def run(directory: Path, raw: dict[str, Any], service: TuningService) -> dict[str, Trial]:
    """Run an experiment to its end and return its trials by name."""
    service.submit(yaml.safe_dump(raw), source=str(directory / "demo.yaml"))
    for change in service.changes(NS, "demo", timeout_seconds=180):
        if isinstance(change.object, Experiment) and is_completed(change.object):
            return {trial.name: trial for trial in service.trials(NS, "demo").items}
    raise AssertionError(service.why(NS, "demo"))


def label(trial: Trial, name: str) -> str:
    return trial.metadata.labels.get(name, "")


def test_every_trial_goes_on_with_what_its_parent_left(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        engine.start()
        raw = a_training(algorithm=an_algorithm(keep_checkpoints="all"))
        trials = run(tmp_path, raw, engine.service)

        folder = tmp_path / "checkpoints" / NS / "demo"
        histories = {name: (folder / name / "history").read_text().split() for name in trials}
        assert sorted(path.name for path in folder.iterdir()) == sorted(trials)
        for name, trial in trials.items():
            parent = label(trial, PARENT_LABEL)
            assert histories[name] == [*(histories[parent] if parent else []), name]
            assert len(histories[name]) == int(label(trial, GENERATION_LABEL)) + 1
        assert max(map(len, histories.values())) >= 3

        engine.service.delete(NS, "demo")
        eventually(lambda: not folder.exists(), "the checkpoints to go with the experiment")


def test_checkpoints_that_no_trial_starts_from_any_more_are_removed(tmp_path: Path) -> None:
    """Also those whose removal was interrupted, at the next start."""
    with open_engine(tmp_path) as engine:
        engine.start()
        trials = run(tmp_path, a_training(maxTrialCount=20), engine.service)
        best = engine.service.best(NS, "demo")
    newest: dict[str, str] = {}
    for name, trial in sorted(trials.items(), key=lambda item: int(label(item[1], STEP_LABEL))):
        newest[label(trial, MEMBER_LABEL)] = name
    assert best is not None
    needed = {*newest.values(), best.name}
    folder = tmp_path / "checkpoints" / NS / "demo"

    assert {path.name for path in folder.iterdir()} == needed

    gone = min(set(trials) - needed)
    (folder / f".{gone}.old").mkdir()
    with open_engine(tmp_path) as engine:
        engine.start()
        said = [
            event.message
            for event in engine.service.events("Experiment", NS, "demo")
            if event.reason == "CheckpointsRemoved"
        ]
    assert any(f"{len(needed)} checkpoints kept" in message for message in said)
    assert {path.name for path in folder.iterdir()} == needed


def test_a_step_that_prints_no_metric_is_tried_twice_and_then_counts_as_one_of_the_worst(tmp_path: Path) -> None:
    """Here a model that has trained once never prints anything again."""
    silent = f'[ -e "$KATIB_CHECKPOINT_DIR/history" ] || {REPORT}; echo 1 >> "$KATIB_CHECKPOINT_DIR/history"'
    with open_engine(tmp_path) as engine:
        engine.start()
        trials = run(tmp_path, a_training(silent, maxTrialCount=20), engine.service)

        assert sum(state_of(trial) == "MetricsUnavailable" for trial in trials.values()) == 15
        attempts = Counter((label(trial, MEMBER_LABEL), label(trial, STEP_LABEL)) for trial in trials.values())
        assert set(attempts.values()) == {1}
        assert max(int(label(trial, STEP_LABEL)) for trial in trials.values()) >= 3


def test_the_lineage_of_a_trial_is_described(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(a_training(parallelTrialCount=1)))
    done = katib("run", "demo.yaml", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    listed = map(Trial.decode, katib_json("get", "trials", cwd=tmp_path)["items"])
    trials = {trial.name: trial for trial in listed}
    youngest = max(trials, key=lambda name: int(label(trials[name], GENERATION_LABEL)))

    described = katib_here("describe", youngest, cwd=tmp_path).stdout

    _, _, lineage = described.partition("Lineage, each trial from the checkpoint of the next one:\n")
    lines = lineage.partition("\n\n")[0].splitlines()
    name = youngest
    for line in lines:
        assert line.split()[:3] == ["generation", label(trials[name], GENERATION_LABEL), name]
        name = label(trials[name], PARENT_LABEL)
    assert name == ""
    assert len(lines) == int(label(trials[youngest], GENERATION_LABEL)) + 1 >= 3


def test_a_trial_that_needs_no_folder_here_reads_its_parent_from_its_labels(tmp_path: Path) -> None:
    raw = a_training("echo from=${trialParameters.parent} at=$KATIB_CHECKPOINT_DIR; " + REPORT, "s3://bucket/pbt")
    reference = f"${{trialSpec.Labels[{PARENT_LABEL}]}}"
    raw["spec"]["trialTemplate"]["trialParameters"].append({"name": "parent", "reference": reference})
    with open_engine(tmp_path) as engine:
        engine.start()
        trials = run(tmp_path, raw, engine.service)

        for trial in trials.values():
            output = b"".join(engine.service.logs(NS, trial.name)).decode()
            assert f"from={label(trial, PARENT_LABEL)} at=\n" in output
        assert not list((tmp_path / "checkpoints").rglob("*"))


def test_a_trial_whose_parents_folder_is_gone_fails_with_the_reason(tmp_path: Path) -> None:
    raw = a_training(f'rm -r "$KATIB_CHECKPOINT_DIR"; {REPORT}', parallelTrialCount=1, maxFailedTrialCount=1)
    with open_engine(tmp_path) as engine:
        engine.start()
        trials = run(tmp_path, raw, engine.service)

        failed = [trial for trial in trials.values() if state_of(trial) == "Failed"]
        assert failed
        parent = label(failed[0], PARENT_LABEL)
        assert f" of trial {parent} is gone: " in failure_of(failed[0])


def test_a_template_that_does_not_mention_the_directory_is_told_of_the_variable(tmp_path: Path) -> None:
    with open_engine(tmp_path) as engine:
        submitted = engine.service.submit(yaml.safe_dump(a_training(REPORT)), source="demo.yaml")

    assert [notice for notice in submitted.notices if "KATIB_CHECKPOINT_DIR" in notice]


MISTAKES = {
    "no-place": {"suggestion_trial_dir": None},
    "relative-place": {"suggestion_trial_dir": "checkpoints"},
    "small-population": {"n_population": 4},
    "threshold": {"truncation_threshold": 1.5},
    "resampling": {"resample_probability": "often"},
    "of-another-algorithm": {"n_populatoin": 6},
}


@pytest.mark.parametrize("changed", MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_setting_is_refused_at_submission(changed: dict[str, Any], tmp_path: Path, golden: Golden) -> None:
    raw = a_training()
    raw["spec"]["algorithm"] = an_algorithm(**changed)  # type: ignore[arg-type]  # by name
    settings = raw["spec"]["algorithm"]["algorithmSettings"]
    raw["spec"]["algorithm"]["algorithmSettings"] = [one for one in settings if one["value"] != "None"]
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(raw))

    refused = katib_here("validate", "demo.yaml", cwd=tmp_path)

    assert refused.returncode == 2
    golden(refused.stdout + refused.stderr)


FILES = 4000
# A first step leaves many files; every other one counts those that it was given.
MANY = (
    'cd "$KATIB_CHECKPOINT_DIR"; '
    f"[ -f file1 ] || seq -f file%g {FILES} | xargs touch; "
    f"echo loss=$(ls | grep -c file) scale=${{trialParameters.learningRate}}"
)


@pytest.mark.slow
def test_a_server_killed_in_mid_copy_leaves_no_half_checkpoint(tmp_path: Path) -> None:
    raw = a_training(MANY, parallelTrialCount=1, maxTrialCount=7)
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(raw))
    folder = tmp_path / ".katib" / "checkpoints" / NS / "demo"
    with a_server(tmp_path, "--orphans", "0") as server:
        server.wait_until_ready()
        applied = katib_here("apply", "demo.yaml", "--server", server.url, cwd=tmp_path)
        assert applied.returncode == 0, applied.stderr
        eventually(lambda: is_copying(folder), "a copy of a checkpoint", every=0.001)
        server.kill()
        eventually(lambda: not server.descendants())
        copied = [len(list(part.iterdir())) for part in folder.glob(".*.part")]
        server.start()
        server.wait_until_ready()
        eventually(lambda: is_over(server.url, tmp_path), "the end", every=0.2)
        trials = katib_json("get", "trials", "--server", server.url, cwd=tmp_path)["items"]
        server.stop()

    assert len(copied) == 1
    assert 0 < copied[0] < FILES
    assert {trial["status"]["observation"]["metrics"][0]["latest"] for trial in trials} == {str(FILES)}
    assert len(trials) == 7
    assert not list(folder.glob(".*.part"))


def is_copying(folder: Path) -> bool:
    return any(next(part.iterdir(), None) is not None for part in folder.glob(".*.part"))


def is_over(url: str, directory: Path) -> bool:
    experiment = katib_json("get", "experiment", "demo", "--server", url, cwd=directory)
    return is_completed(decode_stored(experiment))


# --- the folders themselves -------------------------------------------------------------------------------------------


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "experiment" / "parent"
    (folder / "deep").mkdir(parents=True)
    (folder / "weights").write_bytes(b"w" * 10_000)
    (folder / "deep" / "optimizer").write_bytes(b"o" * 10)
    (folder / "latest").symlink_to("weights")
    os.mkfifo(folder / "pipe")
    return folder


def test_a_copy_holds_files_directories_and_links_and_nothing_that_could_block(origin: Path) -> None:
    own = origin.parent / "own"
    provide_checkpoint(own, origin.parent / ".own.origin", origin)

    assert sorted(str(path.relative_to(own)) for path in own.rglob("*")) == [
        "deep",
        "deep/optimizer",
        "latest",
        "weights",
    ]
    assert (own / "latest").readlink() == Path("weights")


def test_a_folder_that_was_made_is_left_alone_until_its_note_is_gone(origin: Path) -> None:
    own, note = origin.parent / "own", origin.parent / "note"
    provide_checkpoint(own, note, origin)
    (own / "weights").write_text("trained")
    provide_checkpoint(own, note, origin)
    assert (own / "weights").read_text() == "trained"

    note.unlink()
    provide_checkpoint(own, note, origin)

    assert (own / "weights").read_bytes() == b"w" * 10_000


def test_two_that_want_the_same_folder_take_turns(origin: Path) -> None:
    own, note = origin.parent / "own", origin.parent / "note"
    command = [sys.executable, "-I", "-S", checkpoint_folders.__file__, str(own), str(note), str(origin)]

    assert [process.wait(60) for process in [subprocess.Popen(command) for _ in range(4)]] == [0] * 4
    assert (own / "weights").stat().st_size == 10_000


def test_a_disk_that_takes_no_more_is_named_and_leaves_nothing(origin: Path, golden: Golden) -> None:
    own, note = origin.parent / "own", origin.parent / "note"
    command = [sys.executable, "-I", "-S", checkpoint_folders.__file__, str(own), str(note), str(origin)]
    limit = 5_000  # of the size of a file: what a full disk does, within reach of a test

    done = subprocess.run(
        command,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    golden(done.stderr)
    assert sorted(path.name for path in origin.parent.iterdir()) == ["note.lock", "parent"]


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent" / "model").touch(mode=0)

    with pytest.raises(CheckpointError) as caught:
        bound_by_modes(lambda: provide_checkpoint(tmp_path / "own", tmp_path / "note", tmp_path / "parent"))

    assert str(caught.value) == (
        f"checkpoint folder {tmp_path}/own cannot be copied from {tmp_path}/parent: permission denied to user "
        f"{os.geteuid()}: {tmp_path}/parent/model; change its rights or run as its owner"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parent"]


@pytest.mark.parametrize("step", range(6))
def test_a_crash_between_any_two_steps_is_made_good(origin: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    own, note = origin.parent / "own", origin.parent / "note"
    own.mkdir()
    (own / "stale").touch()
    steps = 0

    def counted(call: Any) -> Any:
        def crashing(*arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == step + 1:
                raise KeyboardInterrupt
            return call(*arguments, **options)

        return crashing

    with monkeypatch.context() as patched:
        for name in ("rename", "replace", "unlink", "write_text"):
            patched.setattr(Path, name, counted(getattr(Path, name)))
        patched.setattr(checkpoint_folders, "_copy", counted(checkpoint_folders._copy))
        patched.setattr(checkpoint_folders, "_remove", counted(checkpoint_folders._remove))
        with pytest.raises(KeyboardInterrupt):
            provide_checkpoint(own, note, origin)
    assert not own.exists() or {path.name for path in own.iterdir()} in ({"stale"}, {"deep", "weights", "latest"})

    provide_checkpoint(own, note, origin)

    assert {path.name for path in own.iterdir()} == {"deep", "weights", "latest"}
    assert {path.name for path in origin.parent.iterdir()} == {"note", "own", "parent"}


def test_an_origin_that_is_gone_is_told_apart(tmp_path: Path, golden: Golden) -> None:
    with golden.raises(CheckpointGoneError):
        provide_checkpoint(tmp_path / "own", tmp_path / "note", tmp_path / "parent")

    assert not list(tmp_path.iterdir())


def test_an_error_without_words_is_still_told(origin: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_folders.shutil, "copy2", fails)
    with golden.raises(CheckpointError):
        provide_checkpoint(origin.parent / "own", origin.parent / "note", origin)


def test_removing_takes_what_an_interrupted_copy_left(origin: Path) -> None:
    (origin.parent / ".parent.part").mkdir()
    (origin.parent / ".parent.origin").touch()

    remove_checkpoint(origin)
    remove_checkpoint(origin)

    assert not list(origin.parent.iterdir())
