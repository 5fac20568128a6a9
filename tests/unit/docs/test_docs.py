"""The documentation is a promise: what it names exists, and what exists is named."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import katib
from katib.doors.cli.app import COMMANDS, cli
from katib.engine.algorithm_services.config import AlgorithmEntry, ServicesConfig, SettingEntry
from katib.errors import ERROR_CODES
from katib.figures.catalogue import COMPARISON, FIGURES
from katib.model.configuration import read_configuration
from katib.places.machine import validate_document
from katib.places.machine.admission.check import FIELDS, FieldEffect
from tests.support.page_routes import rest_paths
from tools.reference_pages import pages as reference_pages

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
DOCS = sorted({README, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")})
GENERATED = {ROOT / "docs" / page for page in reference_pages()}
ROOMS = ("katib", "suggestion_services", "metrics_collector")

LABELS = (
    *("component", "deployment", "experiment", "metrics-collector-injection", "optimization-job", "suggestion"),
    "trial",
)

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_VARIABLE = re.compile(r"\bKATIB_[A-Z_]*[A-Z]\b")
_MARK = re.compile(r"katib\.kubeflow\.org/[a-z-]+")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ALL_COMMANDS = [name for section in COMMANDS.values() for name in section]


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def blocks(path: Path, language: str) -> list[str]:
    return [body for found, body in _BLOCK.findall(path.read_text()) if found == language]


def sources() -> Iterator[str]:
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            if "_generated" not in path.parts:
                yield path.read_text()


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*DOCS, ROOT / "CONTRIBUTING.md"], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall(page.read_text()):
        place, _, anchor = target.partition("#")
        if place.startswith(("http://", "https://")):
            continue
        file = (page.parent / place).resolve() if place else page
        if file in GENERATED and not anchor:
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)

    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [README]
    while waiting:
        page = waiting.pop()
        if page in seen or not page.exists():
            continue
        seen.add(page)
        for target in _LINK.findall(page.read_text()):
            place = target.partition("#")[0]
            file = (page.parent / place).resolve()
            if place and file.is_dir():
                waiting += file.glob("*.md")
            elif file.suffix == ".md":
                waiting.append(file)

    assert [str(page.relative_to(ROOT)) for page in DOCS if page not in seen and "docs" in page.parts] == []


def test_the_experiment_of_the_readme_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    experiments = [text for text in blocks(README, "yaml") if "kind: Experiment" in text]
    assert experiments

    for text in experiments:
        assert all("image" in notice for notice in validate_document(text, source="mine.yaml"))


@pytest.mark.parametrize("page", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_code_can_be_read(page: Path) -> None:
    for text in blocks(page, "yaml"):
        list(yaml.safe_load_all(text))
    for text in blocks(page, "python"):
        compile(text if "return" not in text or "def " in text else f"def _():\n {text}", str(page), "exec")


def test_the_configuration_file_of_the_page_is_valid() -> None:
    (text,) = [
        text for text in blocks(ROOT / "docs" / "reference" / "configuration.md", "yaml") if "algorithms:" in text
    ]

    assert [info.name for info in read_configuration(ServicesConfig, text, "page").infos()] == ["my-algorithm", "cmaes"]


@pytest.mark.parametrize("page", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_page_shows_exists(page: Path) -> None:
    shown = set(re.findall(r"(?:^|`|\| |&& )katib ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))

    assert shown <= set(_ALL_COMMANDS)


@pytest.mark.parametrize("command", _ALL_COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = CliRunner().invoke(cli, [command, "--help"])

    assert done.exit_code == 0
    assert "Usage:" in done.output


def test_every_command_is_in_the_docs() -> None:
    pages = "\n".join(page.read_text() for page in DOCS)
    missing = [
        name
        for name in _ALL_COMMANDS
        if not re.search(rf"`(katib )?{name}\b", pages) and not re.search(rf"\bkatib {name}\b", pages)
    ]

    assert missing == []


def test_every_field_variable_and_annotation_is_in_the_docs_and_in_the_code() -> None:
    used = set().union(*(_VARIABLE.findall(text) for text in sources()))

    assert set(_VARIABLE.findall(text_of("reference/configuration.md"))) == used

    used = set().union(*(_MARK.findall(text) for text in sources()))
    documented = set(_MARK.findall(text_of("reference/configuration.md")))
    labels = {f"katib.kubeflow.org/{name}" for name in LABELS}

    assert documented <= used
    assert used - documented <= labels

    page = text_of("reference/configuration.md")
    fields = [field.alias for model in (AlgorithmEntry, SettingEntry) for field in model.model_fields.values()]

    assert [field for field in fields if f"`{field}`" not in page] == []


def test_the_table_of_a_job_puts_no_field_into_the_wrong_column() -> None:
    """The page gives the fields that matter; `fields.py` has all of them."""
    parts = {"Job": "V1JobSpec", "Pod": "V1PodSpec", "Container": "V1Container", "`env`": "V1EnvVarSource"}
    columns = (FieldEffect.SUPPORTED, FieldEffect.IGNORED, FieldEffect.REFUSED)
    wrong = []
    for part, kind in parts.items():
        row = re.search(rf"^\| {re.escape(part)} \|(.*)\|$", text_of("reference/configuration.md"), re.MULTILINE)
        assert row is not None
        for effect, cell in zip(columns, row[1].split("|"), strict=True):
            for name in re.findall(r"`(\w+)`", cell):
                verdict = FIELDS[kind].get(name)
                if verdict is not None and verdict.effect is not effect and "no `" not in cell:
                    wrong.append((part, name, verdict.effect.name))

    assert wrong == []


def test_every_route_and_every_error_is_in_the_docs() -> None:
    described = rest_paths()
    routes = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    page = text_of("reference/rest.md")
    listed = re.findall(r"^\| `((?:GET|POST|DELETE|PUT|PATCH) [^`]+)` \|", page, re.MULTILINE)

    assert {route.replace(" NS/", " /api/v1/namespaces/{namespace}/") for route in listed} == routes

    rows = set(re.findall(r"^\| (\d+) \| `(\w+)` \|", text_of("reference/rest.md"), re.MULTILINE))

    assert {(str(code.http_status), code.reason) for code in ERROR_CODES.values()} <= rows


def test_every_argument_of_tune_and_every_kind_of_parameter_is_in_the_docs() -> None:
    page = text_of("how-to/python.md")
    arguments = set(inspect.signature(katib.tune).parameters) - {"function", "parameters"}
    kinds = [name for name in ("double", "int", "categorical", "discrete") if hasattr(katib.search, name)]

    assert [name for name in sorted(arguments) if f"`{name}`" not in page] == []
    for kind in kinds:
        names = list(inspect.signature(getattr(katib.search, kind)).parameters)
        shown = re.search(rf"`katib\.search\.{kind}\(([^)]*)\)`", page)
        assert shown is not None
        assert [part.split("=")[0] for part in shown[1].split(", ")] == names


PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "ui.md").read_text()
CHAPTER = PAGE.partition("## What each picture shows and how to act on it\n")[2].partition("\n## ")[0]
SECTIONS = dict(re.findall(r"(?ms)^### (\S+)\n(.*?)(?=^### |\Z)", CHAPTER))


@pytest.mark.parametrize("name", [kind.name for kind in (*FIGURES, COMPARISON)])
def test_each_figure_has_a_section_that_tells_how_to_act(name: str) -> None:
    assert name in SECTIONS
    assert len(SECTIONS[name].split()) > 30


def test_links_between_sections_lead_somewhere() -> None:
    targets = set(re.findall(r"\]\(#([a-z]+)\)", CHAPTER))

    assert targets <= set(SECTIONS)
