"""Every block of code in the documentation is run, or says why it is not and is checked as far as possible."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

import katib
from katib.doors.cli.app import cli
from katib.engine.algorithm_services.config import ServicesConfig
from katib.errors import InvalidError
from katib.model.configuration import read_configuration
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.machine import validate_document
from katib.service.drafting.job_files import read_job
from tests.support.doc_blocks import PAGES, ROOT, Block, blocks_of, is_mark, run_page
from tests.support.experiments import a_double, an_experiment, an_int

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SPEC_FIELDS = frozenset(
    {"objective", "algorithm", "earlyStopping", "parameters", "metricsCollectorSpec", "nasConfig", "maxTrialCount"}
)
TEMPLATE_FIELDS = frozenset({"trialParameters", "trialSpec"})
SERVICES_FIELDS = frozenset({"algorithms", "containerLogMaxSize", "containerLogMaxFiles", "metricsRetention"})
CHART_VALUES = json.loads((ROOT / "manifests" / "chart" / "values.schema.json").read_text())
LEFT_OUT = frozenset(
    {
        "command-not-found",
        "pod-resources",
        "template-assignment-unused",
        "template-parameter-unused",
        "template-placeholder-missing",
        "template-placeholder-unknown",
        "template-primary-container",
        "trial-parameter-otherwise-unused",
        "trial-parameter-reference-unknown",
    }
)
"""Origins of errors about what a fragment does not show, or what this machine does not have."""


def of(*languages: str) -> list[Any]:
    return [pytest.param(block, id=str(block)) for block in BLOCKS if block.language in languages]


def runnable(page: Path) -> bool:
    return any(block.is_run and not block.is_slow for block in blocks_of(page))


@pytest.mark.parametrize("page", [pytest.param(p, id=p.relative_to(ROOT).as_posix()) for p in PAGES if runnable(p)])
def test_the_blocks_of_a_page_run_as_they_are(page: Path, tmp_path: Path) -> None:
    assert run_page(page, tmp_path, slow=False) == []


@pytest.mark.parametrize("block", of("python", "sh"))
def test_a_block_is_run_or_says_why_it_is_not(block: Block) -> None:
    assert is_mark(block.mark)
    assert block.file or block.is_run or len(block.reason.split()) > 1


def test_code_has_a_language() -> None:
    """A block without one is output or a drawing: a command in it would be checked by nothing."""
    plain = [block for block in BLOCKS if block.language in {"", "text"} and block.page.name != "index.md"]

    assert [str(block) for block in plain if re.match(r"(katib|kubectl|make|pip) ", block.text)] == []


@pytest.mark.parametrize("block", of("python"))
def test_what_a_block_uses_of_katib_exists(block: Block) -> None:
    for dotted in re.findall(r"\bkatib\.(\w+(?:\.\w+)*)", block.text):
        thing: Any = katib
        for name in dotted.split("."):
            try:
                thing = getattr(thing, name) if hasattr(thing, name) else import_module(f"{thing.__name__}.{name}")
            except ModuleNotFoundError as error:
                if (error.name or "katib").partition(".")[0] == "katib":
                    raise
                pytest.skip(f"{error.name} is not installed")  # the library that a module plugs into


@pytest.mark.parametrize("block", of("sh"))
def test_commands_of_a_block_have_their_options(block: Block) -> None:
    for words in commands(block.text, "katib"):
        parse(cli, click.Context(cli, info_name="katib"), words)


@pytest.mark.parametrize("block", of("sh"))
def test_targets_and_folders_of_a_block_exist(block: Block) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    for words in commands(block.text, "make"):
        assert set(words) <= targets
    for words in commands(block.text, "kubectl"):
        for option, value in pairwise(words):
            if option in {"-k", "-f"} and value.startswith(("manifests/", "examples/")):
                assert (ROOT / value).exists()


@pytest.mark.parametrize("block", of("yaml"))
def test_yaml_is_valid_where_it_belongs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    data = next(yaml.safe_load_all(block.text))
    if block.reason:
        return

    if data.get("kind") == "KatibConfig" or "runtime" in data:
        whole = {"apiVersion": "config.kubeflow.org/v1beta1", "kind": "KatibConfig", **data}
        read_configuration(KatibConfig, yaml.safe_dump(whole), "page")
    elif data.keys() <= CHART_VALUES["properties"].keys():
        jsonschema.validate(data, CHART_VALUES)
    elif data.keys() <= SERVICES_FIELDS:
        read_configuration(ServicesConfig, block.text, "page")
    elif data.get("kind") == "Experiment":
        validate_document(block.text, source="page")
    elif data.get("kind") == "Job":
        read_job(block.text, "page")
    else:
        assert mistakes(whole_of(data)) == []


def whole_of(fragment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment that has what a block shows, and plain values for what it leaves out."""
    raw = an_experiment(algorithm=None, parameters=[a_double("lr"), an_int("layers")], maxTrialCount=10)
    spec = raw["spec"]
    template = spec["trialTemplate"]
    if "kind" in fragment:
        template["trialSpec"] = dict(fragment)
    elif fragment.keys() == {"spec"}:
        spec |= fragment["spec"]
    elif fragment.keys() == {"containers"}:
        template["trialSpec"]["spec"]["template"]["spec"] |= fragment
    elif fragment.keys() <= TEMPLATE_FIELDS:
        template |= fragment
    else:
        assert fragment.keys() <= SPEC_FIELDS, "it belongs nowhere: mark it"
        spec |= fragment
    if "nasConfig" in spec:
        del spec["parameters"]
        spec["algorithm"] = {"algorithmName": "enas"}
    return raw


def mistakes(raw: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with an experiment, but for what its blocks leave out and what this machine lacks."""
    try:
        validate_document(yaml.safe_dump(raw), source="page")
    except InvalidError as error:
        return [str(one) for one in error.errors if one.origin not in LEFT_OUT]
    return []


def test_a_mistake_in_a_fragment_is_found() -> None:
    assert len(mistakes(whole_of({"objective": {"type": "maximise", "objectiveMetricName": "accuracy"}}))) == 1


def commands(text: str, program: str) -> Iterator[list[str]]:
    """Yield the words behind a program, for each of its calls in shell text."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set(";|&()"):
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words = words[1:]
                if words and words[0] == program:
                    yield words[1:]
                words = []
            else:
                words.append(word)


def parse(command: click.Command, context: click.Context, words: list[str]) -> None:
    """Parse arguments as click does; what does not exist is an error."""
    if isinstance(command, click.Group):
        inner = command.get_command(context, words[0])
        assert inner is not None
        parse(inner, click.Context(inner, parent=context, info_name=words[0]), words[1:])
        return
    parser = command.make_parser(context)
    parser.parse_args([word for word in words if word not in {">", "<"}])


def test_the_check_of_commands_finds_what_is_wrong() -> None:
    (words,) = commands("KATIB_HOME=x katib run a.yaml --no-such-option | head", "katib")

    assert words == ["run", "a.yaml", "--no-such-option"]
    with pytest.raises(click.NoSuchOption):
        parse(cli, click.Context(cli), words)
