"""What a user reads who gives wrong input: one line each, the exit code 2, never a traceback."""

from __future__ import annotations

import copy
import json
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import katib, katib_json
from tests.support.experiments import a_choice, a_double, a_job, a_template, an_experiment, an_int

JOB = "spec.trialTemplate.trialSpec"
CONTAINER = f"{JOB}.spec.template.spec.containers[0]"
GOOD = yaml.safe_dump(an_experiment())

TEXTS = {
    "empty file": ("", "it is empty; write an Experiment into it"),
    "a list": ("- 1\n", "it is a list, not an object; start with apiVersion, kind, metadata and spec"),
    "several documents": (
        f"{GOOD}\n---\n{GOOD}",
        (
            f'it holds 2 Experiments, "demo" at line 1 and "demo" at line {GOOD.count(chr(10)) + 3}; '
            "put each Experiment into a file of its own"
        ),
    ),
}
PLACED_TEXTS = {
    "not YAML": ("a: [1\nb: }", ":2:2: did not find expected ',' or ']'; close the bracket or add the comma"),
    "tabs": ("a:\n\tb: 1\n", ":2:1: a tab character indents this line; indent with spaces"),
    "a NUL byte": ("a: \0", ":1: it holds the control character U+0000; give a YAML or JSON text file"),
}


def with_setting(name: str, value: str) -> dict[str, Any]:
    settings = [{"name": name, "value": value}]
    return an_experiment(algorithm={"algorithmName": "tpe", "algorithmSettings": settings})


def with_container(**fields: Any) -> dict[str, Any]:
    job = a_job()
    job["spec"]["template"]["spec"]["containers"] = [{"name": "training", "image": "busybox", **fields}]
    return an_experiment(trialTemplate=a_template(trialSpec=job))


EXPERIMENTS = {
    "wrong kind": (
        {**an_experiment(), "kind": "Experimnt"},
        'kind: "Experimnt" is not accepted; did you mean Experiment?',
    ),
    "wrong version": (
        {**an_experiment(), "apiVersion": "kubeflow.org/v1alpha3"},
        'apiVersion: "kubeflow.org/v1alpha3" is not the version of Experiment; write kubeflow.org/v1beta1',
    ),
    "no DNS label": (
        an_experiment(name="My_Exp"),
        (
            'metadata.name: "My_Exp" is not a DNS label; use lower case letters, digits and hyphens, beginning with a '
            "letter and ending with a letter or digit"
        ),
    ),
    "long name": (an_experiment(name="a" * 41), f'metadata.name: "{"a" * 41}" has 41 characters; use at most 40'),
    "unknown field": (
        an_experiment(maxTrialCounts=3),
        'spec.maxTrialCounts: spec has no field "maxTrialCounts"; did you mean maxTrialCount?',
    ),
    "wrong type": (
        an_experiment(maxTrialCount="x"),
        'spec.maxTrialCount: "x" is not a whole number; write a whole number without quotes',
    ),
    "no trials": (an_experiment(maxTrialCount=0), "spec.maxTrialCount: 0 is not above 0; use at least 1"),
    "too many at once": (
        an_experiment(parallelTrialCount=9),
        "spec.parallelTrialCount: 9 is above maxTrialCount 3; use at most 3 or raise maxTrialCount",
    ),
    "no objective": (
        an_experiment(objective=None),
        "spec.objective: it is missing; say what to optimize with type and objectiveMetricName",
    ),
    "direction": (
        an_experiment(objective={"type": "maximise", "objectiveMetricName": "loss"}),
        'spec.objective.type: "maximise" is no direction; did you mean maximize? use one of minimize, maximize',
    ),
    "resume policy": (
        an_experiment(resumePolicy="Always"),
        'spec.resumePolicy: "Always" is no resume policy; use one of Never, LongRunning, FromVolume',
    ),
    "unknown algorithm": (
        an_experiment(algorithm={"algorithmName": "tpee"}),
        (
            'spec.algorithm.algorithmName: "tpee" is unknown; did you mean tpe? '
            "use one of random, grid, tpe, multivariate-tpe, bayesianoptimization"
        ),
    ),
    "setting value": (
        with_setting("n_startup_trials", "many"),
        'spec.algorithm.algorithmSettings[0].value: "many" is not a whole number; give n_startup_trials a whole number',
    ),
    "setting name": (
        with_setting("n_startup_trial", "5"),
        (
            'spec.algorithm.algorithmSettings[0].name: "n_startup_trial" is no setting of tpe; '
            "did you mean n_startup_trials? use one of random_state, n_startup_trials, n_ei_candidates, "
            "n_EI_candidates, gamma, prior_weight"
        ),
    ),
    "bounds": (
        an_experiment(parameters=[a_double("lr", low="1", high="0")]),
        "spec.parameters[0].feasibleSpace.min: 1 is above max 0; swap the bounds or raise max",
    ),
    "bound is NaN": (
        an_experiment(parameters=[a_double("lr", low="nan")]),
        'spec.parameters[0].feasibleSpace.min: "nan" is not a finite number; write a number',
    ),
    "step": (
        an_experiment(parameters=[an_int("lr", step="100")]),
        "spec.parameters[0].feasibleSpace.step: 100 does not fit between min 1 and max 10; use at most 9",
    ),
    "empty list": (
        an_experiment(parameters=[a_choice("lr", [])]),
        "spec.parameters[0].feasibleSpace: it is empty; give a list",
    ),
    "duplicate parameter": (
        an_experiment(parameters=[a_double("lr"), a_double("lr")]),
        'spec.parameters[1].name: "lr" is used twice; give each parameter its own name',
    ),
    "placeholder without parameter": (
        an_experiment(command="echo ${trialParameters.learningRate} ${trialParameters.momentum}"),
        (
            f"{JOB}: placeholder ${{trialParameters.momentum}} has no trial parameter; "
            "add a trial parameter named momentum"
        ),
    ),
    "trial parameter without placeholder": (
        an_experiment(command="echo 1"),
        (
            "spec.trialTemplate.trialParameters[0].name: ${trialParameters.learningRate} does not occur in the template"
            "; use it there, or remove the trial parameter"
        ),
    ),
    "parameter without placeholder": (
        an_experiment(parameters=[a_double("lr"), a_double("momentum")]),
        (
            "spec.parameters[1].name: no trial parameter refers to momentum, so its value would never reach a trial; "
            "add an entry with reference momentum to spec.trialTemplate.trialParameters, or remove the parameter"
        ),
    ),
    "no template": (
        an_experiment(trialTemplate=None),
        "spec.trialTemplate: it is missing; describe the object that each trial runs as",
    ),
    "no command": (
        with_container(args=["${trialParameters.learningRate}"]),
        (
            f"{CONTAINER}.command: it is missing, and the entry point of the image is unknown because images are not "
            "run here; give the command with its full path or name"
        ),
    ),
    "no such program": (
        with_container(command=["no-such-program", "${trialParameters.learningRate}"]),
        (
            f'{CONTAINER}.command[0]: "no-such-program" is not on this machine; install it or use a full path '
            "(images are not run here)"
        ),
    ),
    "job kind": (
        an_experiment(trialTemplate=a_template(trialSpec={**a_job(), "kind": "PyTorchJob"})),
        (
            f"{JOB}.kind: kind PyTorchJob needs a cluster; use kind Job of batch/v1, which runs on this machine, or "
            "submit the experiment to Kubernetes"
        ),
    ),
    "primary container": (
        an_experiment(trialTemplate=a_template(primaryContainerName="main")),
        'spec.trialTemplate.primaryContainerName: no container of the template is named "main"; use one of training',
    ),
    "collector": (
        an_experiment(metricsCollectorSpec={"collector": {"kind": "TensorFlowEvent"}}),
        (
            "spec.metricsCollectorSpec.collector.kind: TensorFlowEvent is not available here; "
            "use one of File, Push, StdOut"
        ),
    ),
    "filter": (
        an_experiment(
            metricsCollectorSpec={
                "collector": {"kind": "StdOut"},
                "source": {"filter": {"metricsFormat": ["([a-z"]}},
            }
        ),
        (
            'spec.metricsCollectorSpec.source.filter.metricsFormat[0]: "([a-z" is not an RE2 expression: missing ]: '
            "[a-z; mend the expression"
        ),
    ),
}

LINES = {
    **{name: (text, f": {line}") for name, (text, line) in TEXTS.items()},
    **PLACED_TEXTS,
    **{name: (yaml.safe_dump(raw), f": {line}") for name, (raw, line) in EXPERIMENTS.items()},
}


@pytest.mark.parametrize(("text", "line"), LINES.values(), ids=LINES)
def test_a_wrong_file_is_explained_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "x.yaml").write_text(text)

    done = katib("validate", "x.yaml", cwd=tmp_path)

    assert (done.returncode, done.stderr, done.stdout) == (2, f"x.yaml{line}\n", "")


@pytest.mark.parametrize("name", ["empty file", "not YAML", "unknown algorithm", "no command"])
def test_run_explains_as_validate_does(tmp_path: Path, name: str) -> None:
    text, line = LINES[name]
    (tmp_path / "x.yaml").write_text(text)

    done = katib("run", "x.yaml", cwd=tmp_path)

    assert (done.returncode, done.stderr, done.stdout) == (2, f"error: x.yaml{line}\n", "")


def test_all_errors_of_a_file_come_at_once(tmp_path: Path) -> None:
    raw = an_experiment(name="No", maxTrialCount=0, parameters=[a_double("lr", low="1", high="0")])
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(raw))

    done = katib("run", "x.yaml", cwd=tmp_path)

    paths = [line.split(": ")[2] for line in done.stderr.splitlines()]
    assert paths == ["metadata.name", "spec.maxTrialCount", "spec.parameters[0].feasibleSpace.min"]


def a_directory(path: Path) -> None:
    path.mkdir()


def bytes_of_an_image(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n")


def nothing(_path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "line"),
    [
        pytest.param(nothing, "no such file or directory; check the path", id="missing"),
        pytest.param(a_directory, "is a directory; check the path", id="a directory"),
        pytest.param(bytes_of_an_image, "byte 0 is not UTF-8; save it as UTF-8 text", id="an image"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Callable[[Path], None], line: str) -> None:
    make(tmp_path / "x.yaml")

    done = katib("run", "x.yaml", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (2, f"error: x.yaml: {line}\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    (tmp_path / "x.yaml").chmod(0)

    done = katib("run", "x.yaml", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (2, "error: x.yaml: permission denied; check the path\n")


ARGUMENTS = {
    "unknown command": (["rum", "x.yaml"], 'there is no command "rum"; did you mean `katib run`?'),
    "unknown option": (["run", "x.yaml", "--fast"], "no such option '--fast'; see `katib run --help`"),
    "no file": (["run"], "missing argument 'FILE'; see `katib run --help`"),
    "output form": (
        ["run", "x.yaml", "-o", "xml"],
        "invalid value for '-o' / '--output': 'xml' is not one of 'json', 'yaml'; see `katib run --help`",
    ),
    "beyond this machine": (
        ["serve", "--host", "0.0.0.0"],
        (
            "--host: 0.0.0.0 can be reached from other machines, and an experiment runs commands on this one; set a "
            "token with --token or KATIB_TOKEN, or listen on 127.0.0.1"
        ),
    ),
    "server address": (
        ["best", "x", "--server", "foo"],
        '--server: "foo" is no URL; write it like http://127.0.0.1:8765',
    ),
}


@pytest.mark.parametrize(("arguments", "line"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments_are_explained_in_one_line(tmp_path: Path, arguments: list[str], line: str) -> None:
    done = katib(*arguments, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (2, f"error: {line}\n")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = katib("serve", "--port", str(port), cwd=tmp_path)

    assert (done.returncode, done.stderr) == (
        2,
        (
            f"error: --port: port {port} on 127.0.0.1 is in use by another program; stop it, or choose another port, "
            "such as --port 0 for a free one\n"
        ),
    )


def test_a_file_that_changed_too_much_is_refused_with_what_changed(tmp_path: Path) -> None:
    def write(high: str, trials: int) -> None:
        raw = an_experiment(
            maxTrialCount=trials,
            parallelTrialCount=1,
            resumePolicy="LongRunning",
            parameters=[a_double("lr", high=high)],
        )
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(raw))

    write("0.1", 1)
    assert katib("run", "x.yaml", "-q", cwd=tmp_path).returncode == 0
    write("9", 2)

    done = katib("run", "x.yaml", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (
        2,
        (
            'error: x.yaml: spec.parameters[0].feasibleSpace.max: changed from "0.1" to "9"; undo it, or submit the '
            "experiment under another name\n"
        ),
    )
    assert katib_json("get", "experiment", "demo", cwd=tmp_path)["status"]["trialsSucceeded"] == 1


@pytest.mark.parametrize("form", ["trial", "experiment"])
def test_a_name_is_taken_as_it_was_printed(tmp_path: Path, form: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(an_experiment(maxTrialCount=1, parallelTrialCount=1)))
    assert katib("run", path, "-q", cwd=tmp_path).returncode == 0
    listing = ["trials", "demo"] if form == "trial" else ["get"]
    name = katib(*listing, "-o", "name", cwd=tmp_path).stdout.strip()
    assert name.startswith(f"{form}/")

    done = [katib(command, name, cwd=tmp_path) for command in ("get", "describe", "why")]

    assert [d.returncode for d in done] == [0, 0, 0], [d.stderr for d in done]


JUNK: list[Any] = [
    None, "", "x", "\0", "é\u2028", "${trialParameters.", "nan", -1, 0, 2**70, 1.5, float("inf"), True, [], {}, [[]],
    {"a": {}}, [None], "x" * 5000, "2026-01-01", {1: 2},
]  # fmt: skip


def mutated(rng: random.Random) -> str:
    """Return an experiment with one to three places replaced, removed or doubled, sometimes cut off."""
    raw = copy.deepcopy(an_experiment())
    for _ in range(rng.randint(1, 3)):
        holder: Any = raw
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.8:
                holder = holder[key]
                continue
            if rng.random() < 0.2:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(rng.choice(JUNK))
            break
    text = yaml.safe_dump(raw, allow_unicode=rng.random() < 0.5) if rng.random() < 0.8 else json.dumps(raw)
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.15 else text


def test_a_hundred_mutated_files_are_judged_line_by_line(tmp_path: Path) -> None:
    rng = random.Random(20)
    names = [f"{number}.yaml" for number in range(100)]
    for name in names:
        (tmp_path / name).write_text(mutated(rng))

    done = katib("validate", *names, cwd=tmp_path)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr
    lines = done.stderr.splitlines() + done.stdout.splitlines()
    assert {line.split(":")[0] for line in lines} == set(names)


def test_run_ends_in_order_whatever_the_file_is(tmp_path: Path) -> None:
    rng = random.Random(21)
    for number in range(12):
        path = tmp_path / f"{number}.yaml"
        path.write_text(mutated(rng))

        done = katib("run", path, "--data-dir", tmp_path / f"data-{number}", cwd=tmp_path, timeout=30)

        assert done.returncode in (0, 1, 2), done.stderr
        assert "Traceback" not in done.stderr
        assert "bug" not in done.stderr
