"""`katib validate` and `katib algorithms`: what needs neither server nor data."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.fake_engine import refuse
from tests.support.golden import Golden
from tests.support.tuning import document
from tests.unit.cli.conftest import Katib


def test_files_are_checked_and_their_notices_are_told(katib: Katib, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(document("good"))
    result = katib("validate", "good.yaml")

    assert result.code == 0
    assert result.out == "good.yaml: ok\n"
    assert result.err.startswith("good.yaml: note: ")
    assert ".image" in result.err

    (tmp_path / "good.yaml").write_text(document("good"))
    result = katib("validate", "ghost.yaml", "good.yaml")

    assert result.code == 2
    assert result.out == "good.yaml: ok\n"


@pytest.mark.parametrize("form", ["documents", "a List"])
def test_several_experiments_of_a_file_are_taken_one_after_the_other(
    katib: Katib, tmp_path: Path, form: str, golden: Golden
) -> None:
    namespace = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    objects = [namespace, document("one"), document("two")]
    text = "\n---\n".join(objects)
    if form == "a List":
        text = f'{{"apiVersion": "v1", "kind": "List", "items": [{", ".join(objects)}]}}'
    (tmp_path / "all.yaml").write_text(text)

    golden(katib("validate", "all.yaml").out)

    result = katib("run", "all.yaml")

    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines() if " succeeded: " in line] == ["one", "two"]


def test_every_error_is_a_line_that_begins_with_the_file(
    katib: Katib, tmp_path: Path, engine: ModuleType, golden: Golden
) -> None:
    engine.validate_document = refuse  # type: ignore[attr-defined]
    (tmp_path / "bad.yaml").write_text(document())
    result = katib("validate", "bad.yaml")

    assert result.code == 2
    assert result.out == ""
    golden(result.err.splitlines())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(None, "no such file or directory", id="missing"),
        pytest.param(b"\xff\xfe", "byte 0 is not UTF-8", id="not-text"),
        pytest.param(b" " * (4 * 1024 * 1024 + 1), "is larger than", id="huge"),
    ],
)
def test_a_file_that_cannot_be_read_is_bad_input(
    katib: Katib, tmp_path: Path, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "x.yaml").write_bytes(content)
    result = katib("validate", "x.yaml")

    assert result.code == 2
    assert result.err.startswith(f"x.yaml: {said}")
    assert result.err.count("\n") == 1


def test_files_of_other_tools_are_answered_with_the_command_for_them(
    katib: Katib, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "sweep.yaml").write_text("program: train.py\nmethod: bayes\nparameters: {}\n")

    golden(katib("validate", "sweep.yaml").err)
    golden(katib("validate", "train.py").err)
    assert "it is a notebook" in katib("validate", "train.ipynb").err


def test_a_converted_sweep_says_what_is_read(katib: Katib, tmp_path: Path, golden: Golden) -> None:
    sweep = "program: train.py\nmetric: loss\nparameters: {lr: {min: 0.1, max: 0.2}}\n"
    (tmp_path / "sweep.yaml").write_text(sweep)
    result = katib("convert", "sweep.yaml")

    assert result.out.startswith("apiVersion: kubeflow.org/v1beta1\nkind: Experiment\n")
    golden(result.err)


def test_algorithms_are_listed_with_their_settings(katib: Katib, golden: Golden) -> None:
    out = katib("algorithms").out

    golden(out)
    assert "random_state" not in out
    assert out.index("Early stopping algorithms:") < out.index("medianstop")

    out = katib("algorithms", "random").out

    golden(out)
    golden(katib("algorithms", "house-special").out)

    (info,) = json.loads(katib("algorithms", "random", "-o", "json").out)

    assert info["settings"][0]["atLeast"] == 0
    assert info["readsHistory"] is False

    result = katib("algorithms", "tpee")

    assert result.code == 2
    assert "random, house-special, medianstop" in result.err
