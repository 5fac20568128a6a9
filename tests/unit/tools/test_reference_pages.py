"""The generated pages of the documentation have everything that they are about."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from katib.cli.app import COMMANDS, cli
from tools.reference_pages import commands_page, defaults, example_pages, experiment_page, rest_page

ROOT = Path(__file__).parents[3]
COMMANDS_PAGE = commands_page()
SECTIONS = dict(re.findall(r"(?ms)^###+ (katib [a-z -]+)\n(.*?)(?=^##+ |\Z)", COMMANDS_PAGE))
NAMES = [name for section in COMMANDS.values() for name in section]


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_a_command_is_in_its_section(name: str) -> None:
    context = click.Context(cli, info_name="katib")
    command = cli.get_command(context, name)
    assert command is not None
    section = SECTIONS[f"katib {name}"]
    own = click.Context(command, parent=context, info_name=name)
    records = [parameter.get_help_record(own) for parameter in command.get_params(own)]
    options = [record[0].partition(" ")[0].rstrip(",") for record in records if record and record[1]]

    assert [option for option in options if option not in section and option != "--help"] == []


def test_commands_of_a_group_have_sections_of_their_own() -> None:
    assert "katib trial add" in SECTIONS


def test_the_words_of_a_help_message_format_nothing() -> None:
    """`{lr}` and `*.yaml` are words there, not Markdown."""
    prose = [line for line in SECTIONS["katib tune"].splitlines() if "KATIB" in line and not line.startswith("katib")]

    assert prose
    assert all(r"KATIB\_" in line for line in prose)


def test_every_field_has_a_type_and_a_meaning() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", experiment_page(), re.MULTILINE)

    assert len(rows) > 100
    assert [name for name, rest in rows if not rest.split(" | ")[0].strip() or not rest.split(" | ")[-1].strip()] == []


def test_defaults_are_those_of_the_code() -> None:
    found = defaults()

    assert found["spec.parallelTrialCount"] == "`3`"
    assert found["spec.algorithm.algorithmName"] == "`auto`"
    assert found["spec.objective.metricStrategies[].value"] == "to minimize: `min`"
    assert found["spec.metricsCollectorSpec.source.httpGet"] == "`PrometheusMetric`: `{path: /metrics, port: 8080}`"
    assert "spec.objective.objectiveMetricName" not in found


def test_every_route_and_every_type_is_in_the_page() -> None:
    description = json.loads((ROOT / "tests" / "golden" / "openapi.json").read_text())
    page = rest_page(description)
    routes = [f"### `{method.upper()} {path}`" for path, methods in description["paths"].items() for method in methods]
    linked = set(re.findall(r"\(#(rest-type-\w+)\)", page))

    assert [route for route in routes if route not in page] == []
    assert linked <= set(re.findall(r"^\((rest-type-\w+)\)=$", page, re.MULTILINE))


def test_every_example_has_a_page_with_its_files() -> None:
    pages = example_pages()
    files = [
        file
        for file in (ROOT / "examples").rglob("*")
        if file.suffix in {".py", ".yaml"} and "_pb2" not in file.name and "__pycache__" not in file.parts
    ]

    assert files
    for file in files:
        page = pages[f"{file.parent.relative_to(ROOT).as_posix()}.md"]
        assert f"## {file.name}\n" in page
        assert file.read_text().strip() in page
