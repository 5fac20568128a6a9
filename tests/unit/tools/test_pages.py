"""The generated pages of the documentation have all that they are about, and links lead to pages of the site."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from katib.doors.cli.app import COMMANDS, cli
from suggestion_services.algorithms import ENTRIES
from tools.algorithm_page import PAGE, updated
from tools.build_docs import OF_THE_REPOSITORY, REPOSITORY, relinked, site_pages, targets
from tools.reference_pages import commands_page, defaults, example_pages, experiment_page, pages, rest_page

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


def test_groups_have_sections_of_their_own_and_their_words_format_nothing() -> None:
    assert "katib trial add" in SECTIONS

    # `{lr}` and `*.yaml` are words there, not Markdown
    prose = [line for line in SECTIONS["katib tune"].splitlines() if "KATIB" in line and not line.startswith("katib")]

    assert prose
    assert all(r"KATIB\_" in line for line in prose)


def test_fields_have_types_meanings_and_the_defaults_of_the_code() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", experiment_page(), re.MULTILINE)

    assert len(rows) > 100
    assert [name for name, rest in rows if not rest.split(" | ")[0].strip() or not rest.split(" | ")[-1].strip()] == []

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


def test_what_is_missing_or_wrong_is_written_and_the_rest_left_alone() -> None:
    text = PAGE.read_text()
    worn = text.replace("| `sigma` |", "| `sigmund` |").replace("At least 0.", "At least 1.").replace("| yes |", "|  |")
    head, _, rest = worn.partition("\n### tpe\n")
    without_tpe = head + "\n### " + rest.partition("\n### ")[2]

    found = updated(without_tpe)

    assert "\n### tpe\n\nTree-structured Parzen estimator, each parameter for itself.\n\n| setting |" in found
    assert found.replace("\n### tpe\n", "").count("\n### ") == len(ENTRIES) - 1
    assert [line for line in found.splitlines() if line.startswith("|")] == [
        line for line in text.splitlines() if line.startswith("|")
    ]


def test_writing_twice_changes_nothing() -> None:
    once = updated(PAGE.read_text().replace("\n### grid\n", "\n### grid\n\n\n"))

    assert updated(once) == once


PLACES = targets(pages())


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a page](rest.md#errors)", "[a page](rest.md#errors)"),
        ("[an example](../../examples/asha)", "[an example](../examples/asha.md)"),
        ("[its file](../../examples/asha/experiment.yaml)", "[its file](../examples/asha.md)"),
        ("[changes](../../CHANGELOG.md)", "[changes](../project/changelog.md)"),
        ("[decisions](../decisions)", "[decisions](../decisions/README.md)"),
        ("![a picture](../images/experiment.png)", "![a picture](../images/experiment.png)"),
        ("[elsewhere](https://example.com/a.md)", "[elsewhere](https://example.com/a.md)"),
        ("[broken](nowhere.md)", "[broken](nowhere.md)"),
        ("[below](#errors)", "[below](#errors)"),
        ("[`engine.py`](../../katib/places/machine/engine.py)", "`engine.py`"),
        ("[the engine](../../katib/places/machine/engine.py)", "the engine (`katib/places/machine/engine.py`)"),
        ("```\n[in code](y.md)\n```", "```\n[in code](y.md)\n```"),
    ],
)
def test_a_link_leads_to_a_page_of_the_site_or_becomes_text(
    link: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REPOSITORY, raising=False)

    assert relinked(link, "docs/reference/configuration.md", PLACES) == expected


def test_files_that_are_no_pages_are_linked_where_the_repository_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPOSITORY, "https://example.com/katib/blob/main/")

    text = relinked("[it](../proto/api.proto)", "docs/index.md", PLACES)

    assert text == "[it](https://example.com/katib/blob/main/proto/api.proto)"


def test_the_site_has_the_pages_of_the_repository_and_the_generated_ones() -> None:
    assert set(OF_THE_REPOSITORY.values()) | set(pages()) | {"index.md", "decisions/README.md"} <= set(site_pages())
