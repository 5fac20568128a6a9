"""Configuration files of programs as templates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from katib.errors import InvalidError
from katib.service.drafting.config_files import filled_config, read_config
from katib.service.drafting.experiments import Metrics, command_template, parse_parameter

CONF = """# the model
optimizer:
  name: "adam"   # or sgd
  lr: &rate 0.01
  momentum: !!float 1
scheduler: {gamma: 0.5, lr: *rate, steps: [10, 20]}
data: {lr: 7, note: 'a {{lr}} ${lr}'}
text: |
  lr: 3
"""
VALUES = {"optimizer.lr": "1e-05", "name": "sgd", "gamma": "2e-3", "momentum": "3e-4", "steps.1": "30", "absent": "1"}


def test_values_of_a_yaml_file_change_and_nothing_else() -> None:
    used: set[str] = set()
    made = filled_config(CONF, "conf/train.yml", VALUES, VALUES.keys() - {"steps.1"}, used)

    assert used == VALUES.keys() - {"absent"}
    assert made == CONF.replace('"adam"', '"sgd"').replace("&rate 0.01", "&rate !!float 1e-05").replace(
        "float 1\n", "float 3e-4\n"
    ).replace("gamma: 0.5", "gamma: !!float 2e-3").replace("20]", "30]")
    assert yaml.safe_load(made)["scheduler"] == {"gamma": 0.002, "lr": 1e-05, "steps": [10, 30]}


@pytest.mark.parametrize(
    ("name", "text", "made"),
    [
        ("a.json", '{"lr": 0.1, "opt": {"name": "a"}}', '{"lr": 1e-05, "opt": {"name": "sgd"}}'),
        ("a.toml", 'lr = 0.1 # x\n[opt]\nname = "a"\n', 'lr = 1e-05 # x\n[opt]\nname = "sgd"\n'),
        ("a.gin", "Adam.lr=0.1\nnames = 3\n", "Adam.lr=1e-05\nnames = 3\n"),
        ("a.env", "export lr=0.1;name='a'\n", "export lr=1e-05;name='a'\n"),
        ("a.yaml", "lr: 0.2\nrun: x-{lr}\nname: {name}\n", "lr: 0.2\nrun: x-1e-05\nname: sgd\n"),
        (
            "a.yaml",
            "a: [{lr}, 1]\nb: {lr} # x\nc: '{lr}'\n",
            "a: [!!float 1e-05, 1]\nb: !!float 1e-05 # x\nc: '1e-05'\n",
        ),
        ("a.yaml", "lr: 0.2\nother: {lr: 3}\n", "lr: !!float 1e-05\nother: {lr: 3}\n"),
    ],
)
def test_files_of_any_form_are_filled(name: str, text: str, made: str) -> None:
    assert filled_config(text, name, {"lr": "1e-05", "name": "sgd"}, {"lr"}, set()) == made


def test_a_property_of_the_trial_replaces_its_placeholder_but_not_a_key_of_its_name() -> None:
    used: set[str] = set()

    made = filled_config("seed: 3\nlr: 1\nrun: {seed}\n", "a.yaml", {"lr": "2"}, (), used, {"seed": "77", "trial": "t"})

    assert (made, used) == ("seed: 3\nlr: 2\nrun: 77\n", {"lr", "seed"})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", CONF, "lr stands at optimizer.lr, data.lr; name the parameter by its path, or write {lr} in its"),
        ("a.ini", "lr = 1\nx.lr = 2", "a.ini: lr stands at line 1, line 2; write {lr} in its place"),
        ("a.yaml", "lr: [1", "a.yaml: "),
        ("a.yaml", "[" * 2000, "a.yaml: "),
    ],
)
def test_a_value_without_one_place_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidError) as error:
        filled_config(text, name, {"lr": "1"}, set(), set())

    assert message in str(error.value)


def test_a_command_gets_copies_of_its_files(tmp_path: Path) -> None:
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "c.json").write_text(json.dumps({"lr": 1, "place": directory}))
    command = ["t", f"--c={{config:{tmp_path}/a/c.json}}", f"{{config:{tmp_path}/b/c.json}}", "{parameters}"]
    made = command_template(command, [parse_parameter("lr=0.1..0.2")], Metrics())
    pod = made.template["trialSpec"]["spec"]["template"]
    items = pod["spec"]["volumes"][0]["downwardAPI"]["items"]
    annotations = pod["metadata"]["annotations"]

    assert made.notes == ()
    assert pod["spec"]["containers"][0]["command"] == [
        *("t", "--c=/etc/katib/c.json", "/etc/katib/1-c.json", "/etc/katib/parameters.json")
    ]
    assert [item["path"] for item in items] == ["c.json", "1-c.json", "parameters.json"]
    assert [annotations[item["fieldRef"]["fieldPath"].split("'")[1]] for item in items] == [
        '{"lr": ${trialParameters.lr}, "place": "a"}',
        '{"lr": ${trialParameters.lr}, "place": "b"}',
        '{"lr": ${trialParameters.lr}}',
    ]


def test_what_is_no_small_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "large").write_text("x" * 200_001)

    for name, cause in {"bytes": "byte 0 is not UTF-8", "large": "has more than", "none": "no such file"}.items():
        with pytest.raises(InvalidError, match=cause):
            read_config(str(tmp_path / name))
