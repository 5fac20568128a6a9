"""Experiments drafted from one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from katib.errors import InvalidError
from katib.model.types import Experiment, ObjectMeta
from katib.service.drafting.experiments import (
    CommandTemplate,
    Metrics,
    Search,
    command_template,
    draft,
    latest,
    name_of_command,
    next_name,
    parse_metrics,
    parse_parameter,
)
from katib.service.drafting.programs import program_of
from katib.service.drafting.script_options import (
    direction_of,
    is_shell_script,
    make_words,
    metrics_of_output,
    options_of_help,
    options_of_source,
    shell_command,
)
from katib.service.tuning.companions import has_content
from tests.support.experiments import load_experiment
from tests.support.golden import Golden
from tests.support.refusals import refused

LR = parse_parameter("lr=1e-5..1e-1:log")
OPTIMIZER = parse_parameter("optimizer=adam,sgd")
STDOUT = Metrics()


@pytest.mark.parametrize(
    ("text", "kind", "space"),
    [
        ("lr=1e-5..1e-1:log", "double", {"min": "1e-5", "max": "1e-1", "distribution": "logUniform"}),
        ("layers=1..4", "int", {"min": "1", "max": "4"}),
        ("x=-3..3:double", "double", {"min": "-3", "max": "3"}),
        ("x=-.5..1.", "double", {"min": "-.5", "max": "1."}),
        ("x=0.0..1.0:step=0.25", "double", {"min": "0.0", "max": "1.0", "step": "0.25"}),
        ("n=1e1..1e3:int:log", "int", {"min": "10", "max": "1000", "distribution": "logUniform"}),
        ("optimizer=adam,sgd", "categorical", {"list": ["adam", "sgd"]}),
        ("batch=16, 32,64", "discrete", {"list": ["16", "32", "64"]}),
        ("batch=16,32:categorical", "categorical", {"list": ["16", "32"]}),
        ("url=http://a:1,http://b:2", "categorical", {"list": ["http://a:1", "http://b:2"]}),
    ],
)
def test_values_decide_the_type_of_a_parameter(text: str, kind: str, space: dict[str, Any]) -> None:
    name = text.partition("=")[0]

    assert parse_parameter(text) == {"name": name, "parameterType": kind, "feasibleSpace": space}


@pytest.mark.parametrize(
    ("text", "default", "space"),
    [
        ("lr=1e-5..1e-1:log:default=3e-4", "3e-4", {"min": "1e-5", "max": "1e-1", "distribution": "logUniform"}),
        ("layers=1..4:default=2", "2", {"min": "1", "max": "4"}),
        ("opt=adam,sgd:default=sgd", "sgd", {"list": ["adam", "sgd"]}),
        ("batch=16,32:categorical:default=32", "32", {"list": ["16", "32"]}),
        ("batch=16,32:default=32:categorical", "32", {"list": ["16", "32"]}),
        ("on=cuda:0,cuda:1:default=cuda:1", "cuda:1", {"list": ["cuda:0", "cuda:1"]}),
        ("amp=flag:default=on", "--amp", {"list": ["--amp", ""]}),
        ("amp=flag:default=off", "", {"list": ["--amp", ""]}),
    ],
)
def test_the_value_in_use_today_follows_the_values(text: str, default: str, space: dict[str, Any]) -> None:
    found = parse_parameter(text)

    assert (found["default"], found["feasibleSpace"]) == (default, space)


@pytest.mark.parametrize(
    ("text", "prior"),
    [
        ("lr=1e-5..1e-1:log:prior=3e-4", {"center": "3e-4"}),
        ("lr=1e-5..1e-1:prior=3e-4:log:factor=10:default=1e-3", {"center": "3e-4", "factor": "10"}),
        ("x=0..1:double:prior=0.5:width=0.1", {"center": "0.5", "width": "0.1"}),
        ("opt=adam,sgd:default=sgd:prior=adam", {"center": "adam"}),
    ],
)
def test_a_belief_follows_the_values(text: str, prior: dict[str, str]) -> None:
    assert parse_parameter(text)["prior"] == prior


@pytest.mark.parametrize(
    "text",
    [
        "lr",
        "lr=0.1..0.01",
        "lr=0..1:log",
        "lr=a..b",
        "lr=0..nan",
        "lr=1..2:many",
        "lr=1..2:step=-1",
        "lr=1..2:step=0",
        "lr=0.5..2:int",
        "lr=1..2:default=",
        "amp=flag:log",
        "lr=1e-3-1e-1",
        "lr=1\u20262",
        "lr=1\u20132",
        "lr=0.001:0.1:log",
        "lr=uniform(0.1,1)",
        "a=1,1",
        "a=1,,2",
        "a=[1,2]",
        "a=1,2:log",
        "2x=1..2",
        "trial=1..2",
    ],
)
def test_a_wrong_parameter_gets_one_line(text: str, golden: Golden) -> None:
    with pytest.raises(InvalidError) as refused:
        parse_parameter(text)

    golden(refused.value.errors)


def a_template(*command: str, metrics: Metrics = STDOUT) -> CommandTemplate:
    return command_template(command, [LR, OPTIMIZER], metrics)


def pod_of(template: CommandTemplate) -> Any:
    return template.template["trialSpec"]["spec"]["template"]


def words_of(template: CommandTemplate) -> list[str]:
    (container,) = pod_of(template)["spec"]["containers"]
    words: list[str] = container["command"]
    return words


def test_values_reach_the_program_by_placeholders_and_environment(golden: Golden) -> None:
    template = a_template("python", "train.py", "--lr={lr}", "{trial}", "{{lr}}", "${HOME}", '{"a": 1}')

    assert words_of(template) == [
        *("python", "train.py", "--lr=${trialParameters.lr}", "${trialParameters.trial}"),
        *("{lr}", "${HOME}", '{"a": 1}'),
    ]
    golden(template.notes)

    assert words_of(a_template("./train.sh {lr} | tail -1")) == [
        "sh",
        "-c",
        "./train.sh ${trialParameters.lr} | tail -1",
    ]

    (container,) = pod_of(a_template("train"))["spec"]["containers"]

    assert container["env"] == [
        {"name": "KATIB_PARAM_LR", "value": "${trialParameters.lr}"},
        {"name": "KATIB_PARAM_OPTIMIZER", "value": "${trialParameters.optimizer}"},
    ]


def test_facts_of_a_trial_are_trial_parameters_and_a_parameter_named_seed_comes_first() -> None:
    made = a_template("train", "{lr}", "{trial}", "{seed}").template
    own = command_template(["train", "{seed}"], [parse_parameter("seed=1,2,3")], STDOUT).template

    facts = [{"name": "trial", "reference": "${trialSpec.Name}"}, {"name": "seed", "reference": "${trialSpec.Seed}"}]
    assert made["trialParameters"][2:] == facts
    assert a_template("train", "{lr}").template["trialParameters"] == made["trialParameters"][:2]
    assert own["trialParameters"] == [{"name": "seed", "reference": "seed"}]


def test_the_file_of_all_values_is_json_with_numbers() -> None:
    template = a_template("train", "{parameters}")
    ((name, text),) = pod_of(template)["metadata"]["annotations"].items()

    assert words_of(template) == ["train", "/etc/katib/parameters.json"]
    filled = text.replace("${trialParameters.lr}", "1e-05").replace("${trialParameters.optimizer}", "adam")
    assert json.loads(filled) == {"lr": 1e-05, "optimizer": "adam"}
    assert name in pod_of(template)["spec"]["volumes"][0]["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"]
    assert template.notes == ()


@pytest.mark.parametrize(
    ("source", "command", "words", "collector"),
    [
        ("json", ("t", "{metrics}"), ["t", "/var/log/katib/metrics.jsonl"], "File"),
        ("json:out/m.jsonl", ("t", "--log=out/m.jsonl"), ["t", "--log=/var/log/katib/out/m.jsonl"], "File"),
        ("json:m", ("t", "--m", "m"), ["t", "--m", "/var/log/katib/m"], "File"),
        ("tensorboard:/runs", ("t", "/runs"), ["t", "/runs"], "TensorFlowEvent"),
    ],
)
def test_metrics_are_read_where_the_command_writes_them(
    source: str, command: tuple[str, ...], words: list[str], collector: str
) -> None:
    metrics = parse_metrics(source)
    template = a_template(*command, metrics=metrics)
    spec = draft("a", Search({"loss": "minimize"}, 1, 1), [LR], template.template, metrics)["spec"]

    assert words_of(template) == words
    assert spec["metricsCollectorSpec"]["collector"]["kind"] == collector
    assert spec["metricsCollectorSpec"]["source"]["fileSystemPath"]["path"] == words[-1].removeprefix("--log=")


@pytest.mark.parametrize("command", [(), ("cd", "src", "&&", "t"), ("cd", "src"), ("t", "{lrr}"), ("t", "{zzz}")])
def test_a_wrong_command_gets_one_line(command: tuple[str, ...], golden: Golden) -> None:
    with pytest.raises(InvalidError) as refused:
        a_template(*command)

    golden(refused.value.errors)


def test_variables_before_a_command_are_as_in_a_shell() -> None:
    template = a_template("OMP_NUM_THREADS=1", "python", "train.py")

    assert words_of(template) == ["env", "OMP_NUM_THREADS=1", "python", "train.py"]
    assert template.name == "train"
    assert name_of_command(["A=1", "fit"]) == "fit"


def test_names_that_would_share_a_variable_or_break_the_file_are_refused() -> None:
    with refused("variable-name"):
        command_template(["t"], [parse_parameter("a-b=1..2"), parse_parameter("a_b=1..2")], Metrics())

    with refused("variable-name"):
        command_template(["t"], [parse_parameter("a=1..2"), parse_parameter("a=3..4")], Metrics())

    with refused("choice-text"):
        command_template(["t", "{parameters}"], [parse_parameter('a=x"y,z')], Metrics())

    for text in ("stdout:x", "csv:x"):
        with refused("metrics-source"):
            parse_metrics(text)


@pytest.mark.parametrize("objectives", [{"loss": "minimize"}, {"loss": "minimize", "accuracy": "maximize"}])
def test_a_draft_is_an_experiment(objectives: dict[str, str]) -> None:
    template = a_template("train", "{lr}", "{optimizer}").template
    search = Search(objectives, 3, 5, "tpe", {"random_state": 7}, "medianstop", 0.5 if len(objectives) == 1 else None)

    spec = load_experiment(json.dumps(draft("a", search, [LR, OPTIMIZER], template)), "-", "default").experiment.spec

    assert (spec.max_trial_count, spec.parallel_trial_count) == (3, 3)
    assert [p.name for p in spec.parameters] == ["lr", "optimizer"]
    assert spec.early_stopping is not None
    assert spec.early_stopping.algorithm_name == "medianstop"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "src/Train_net.py", "{lr}"], "train-net"),
        (["python train.py {lr}"], "train"),
        (["/usr/bin/true"], "true"),
        (["7z"], "z"),
        (["./4"], "tune"),
    ],
)
def test_an_experiment_is_named_after_the_script(command: list[str], name: str) -> None:
    assert name_of_command(command) == name


def test_names_are_numbered_and_the_newest_experiment_is_the_one_made_last() -> None:
    taken = ["train", "train-3", "train-x", "other"]

    assert next_name("train", taken) == "train-4"
    assert next_name("new", taken) == "new"

    made = [Experiment(metadata=ObjectMeta(name=name)) for name in ("train-3", "train-1", "train", "train-x", "other")]

    assert latest("train", made) == made[2]
    assert latest("new", made) is None


def test_metrics_are_found_by_their_names_unless_patterns_are_given() -> None:
    search, template = Search({"val loss": "minimize"}, 1, 1), a_template("t").template

    assert "metricsCollectorSpec" not in draft("a", search, [LR], template)["spec"]

    spec = draft("a", search, [LR], template, Metrics(formats=(r"(val loss)/(\d+)",)))["spec"]

    assert spec["metricsCollectorSpec"]["source"] == {"filter": {"metricsFormat": [r"(val loss)/(\d+)"]}}


def runtime(**policy: Any) -> dict[str, Any]:
    return {"kind": "TrainingRuntime", "metadata": {"name": "mine"}, "spec": {"mlPolicy": policy, "jobs": [{"a": 1}]}}


@pytest.mark.parametrize(
    ("stored", "same"),
    [
        (runtime(numNodes=2), True),
        (runtime(numNodes=2, torch={"numProcPerNode": "auto"}), True),
        (runtime(numNodes=3), False),
        ({**runtime(numNodes=2), "spec": {"mlPolicy": {"numNodes": 2}, "jobs": []}}, False),
        ({**runtime(numNodes=2), "spec": {}}, False),
    ],
    ids=["the same", "with defaults of the server", "another number", "a shorter list", "nothing"],
)
def test_a_stored_runtime_is_compared_with_the_submitted_one(stored: dict[str, Any], *, same: bool) -> None:
    assert has_content(stored, runtime(numNodes=2)) is same


ARGPARSE = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.01)
p.add_argument("-l", "--layers", type=int, default=2)
p.add_argument("--momentum", default=0.9)
p.add_argument("--scale", type=float, default=2.0)
p.add_argument("--opt", choices=["adam", "sgd"])
p.add_argument("--seed", type=int, default=0)
p.add_argument("--data-dir", default="data")
p.add_argument("--fast", action="store_true")
p.add_argument("input")
"""


def test_options_of_argparse_and_click_are_read() -> None:
    found = [str(option) for option in options_of_source(ARGPARSE)]

    numbers = ["lr=0.001..0.1:log", "layers=1..8", "momentum=0.09..9:log", "scale=0.5..8:double"]
    assert found == [*numbers, "opt=adam,sgd", "fast=flag"]
    assert all(parse_parameter(text) for text in found)

    source = "import click\n@click.option('--opt', type=click.Choice(['a', 'b']))\ndef main(opt): ...\n"

    assert [str(option) for option in options_of_source(source)] == ["opt=a,b"]

    assert options_of_source("def (") == []


def test_choices_and_metrics_are_found_in_what_is_printed() -> None:
    text = "options:\n  -h, --help            show this help\n  --opt {adam,sgd}  which\n  --lr LR\n"

    assert [str(option) for option in options_of_help(text)] == ["opt=adam,sgd"]

    assert metrics_of_output("epoch=1 loss=0.5 val_accuracy=0.9\nname=x") == ["val_accuracy", "loss"]
    assert metrics_of_output("\x1b[KEpoch 1: train loss: 0.5, val loss: 1e-3") == ["val loss", "train loss"]
    assert metrics_of_output("accuracy=1.2.3 loss=1/2") == []


@pytest.mark.parametrize(("metric", "way"), [("val_loss", "minimize"), ("accuracy", "maximize"), ("RMSE", "minimize")])
def test_the_direction_follows_from_the_name(metric: str, way: str) -> None:
    assert direction_of(metric) == way


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        pytest.param("./x.sh", "lr=$1\necho $lr", "./x.sh {lr}", id="argument"),
        pytest.param("bash -e x.sh 0.1 more", "train --lr $1", "bash -e x.sh {lr} more", id="argument in place"),
        pytest.param("./x.sh", 'echo "$LR"', "LR={lr} ./x.sh", id="variable"),
        pytest.param("./x.sh", "LR=${LR:-0.1}\necho $LR", "LR={lr} ./x.sh", id="variable with default"),
        pytest.param("./x.sh", 'train "$@"', "./x.sh --lr {lr}", id="passed on"),
        pytest.param("./x.sh", "LR=0.1\ntrain --lr $LR", "./x.sh", id="set by itself"),
        pytest.param("./x.sh", "train --lr 0.1", "./x.sh", id="nowhere"),
    ],
)
def test_a_shell_script_gets_a_value_where_it_reads_it(line: str, text: str, expected: str) -> None:
    words = line.split()
    place = next(place for place, word in enumerate(words) if word.endswith("x.sh"))

    assert is_shell_script("x.sh", text)
    assert " ".join(shell_command(words, place, text, ["lr"])) == expected


def test_arguments_of_a_shell_script_go_by_its_own_names() -> None:
    text = '#!/bin/sh\nlayers="$2"\nlr=$1\n'

    assert shell_command(["./x"], 0, text, ["layers", "lr"]) == ["./x", "{lr}", "{layers}"]


def test_make_gets_variables_as_its_file_writes_them() -> None:
    assert make_words("train:\n\ttrain $(LR) $(layers)\n", ["lr", "layers"]) == ["LR={lr}", "layers={layers}"]


SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=3e-4)
parser.add_argument("--layers", type=int, default=9)
parser.add_argument("--opt", default="sgd")
parser.add_argument("--amp", action="store_true")
"""
SPACE = [parse_parameter(t) for t in ("lr=1e-5..1e-1:log", "layers=1..4", "opt=adam,sgd", "amp=flag", "depth=1..9")]


def defaults_of(command: Sequence[str], parameters: Sequence[Any] = SPACE) -> dict[str, str]:
    made, note = program_of(command, a_file).with_defaults(parameters)
    found = {one["name"]: one["default"] for one in made if "default" in one}
    assert all(f"{name}={value}" in note for name, value in found.items())
    return found


def a_file(path: str) -> tuple[str, str]:
    return Path(path).read_text(), path


def test_defaults_of_a_script_count_if_the_search_space_has_them(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    found = defaults_of(["python", str(script), "--learning-rate", "{lr}", "--layers={layers}", "--opt", "{opt}"])

    assert found == {"lr": "0.0003", "opt": "sgd", "amp": ""}  # 9 layers are outside


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.yaml", "optimizer: {lr: 3e-4}\nopt: 'adam'\nlayers: 3\n"),
        ("train.json", '{"optimizer": {"lr": 3e-4}, "opt": "adam", "layers": 3}'),
        ("train.toml", 'lr = 3e-4\nopt = "adam"\nlayers = 3\n'),
    ],
)
def test_values_of_a_configuration_file_are_defaults_as_written(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    found = defaults_of(["python", "train.py", "--config", f"{{config:{tmp_path / name}}}"])

    assert found == {"lr": "3e-4", "opt": "adam", "layers": "3"}


def test_values_of_a_job_are_defaults(tmp_path: Path) -> None:
    job = {"command": ["python", "train.py", "--lr=3e-4"], "env": [{"name": "LAYERS", "value": "2"}]}
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"template": {"spec": {"containers": [{"name": "main", **job}]}}},
    }
    (tmp_path / "job.json").write_text(json.dumps(document))

    assert defaults_of([str(tmp_path / "job.json")]) == {"lr": "3e-4", "layers": "2"}


def test_values_of_today_that_violate_a_constraint_are_not_tried(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("lr: 0.01")
    program = program_of(["python", "train.py", f"{{config:{tmp_path}/train.yaml}}"], a_file)

    made, note = program.with_defaults(SPACE, ["layers == 2", "lr < 1e-3"])

    assert made == SPACE
    assert "lr=0.01, violate lr < 1e-3" in note
    assert program.with_defaults(SPACE, ["lr < "])[0] != SPACE  # the fault is found elsewhere


def test_a_given_default_is_kept(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("lr: 0.01")

    made, note = program_of(["python", "train.py", f"{{config:{tmp_path}/train.yaml}}"], a_file).with_defaults(
        [parse_parameter("lr=1e-5..1e-1:log:default=0.02")]
    )

    assert (made[0]["default"], note) == ("0.02", "")
