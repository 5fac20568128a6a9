from __future__ import annotations

from pathlib import Path

import pytest

from katib.errors import InvalidError
from katib.services.catalog import Catalog
from katib.services.config import ServicesConfig, parse_config, read_config
from katib.services.plan import SUGGESTION_HEALTH, ServiceId

WHOLE = """
algorithms:
  - name: mine
    summary: Does it my way.
    command: ["{python}", service.py, --port, "{port}"]
    environment: {LEVEL: "3"}
    readsHistory: false
    settings:
      - {name: rate, type: float, default: "0.5", above: 0, atMost: 1}
  - name: halt
    earlyStopping: true
    address: halt.internal:6788
    healthService: halt
"""


def _errors(text: str) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        parse_config(text, source="katib.yaml")
    return [str(error) for error in caught.value.errors]


def test_a_file_gives_plans_and_what_is_known_of_the_algorithms(tmp_path: Path) -> None:
    file = tmp_path / "katib.yaml"
    file.write_text(WHOLE)

    config = read_config(file)
    mine, halt = config.plans(tmp_path).values()

    assert mine.id == ServiceId("mine")
    assert mine.command == ("{python}", "service.py", "--port", "{port}")
    assert (mine.directory, mine.environment, mine.health_service) == (tmp_path, {"LEVEL": "3"}, SUGGESTION_HEALTH)
    assert (halt.id, halt.address, halt.health_service) == (
        ServiceId("halt", early_stopping=True),
        "halt.internal:6788",
        "halt",
    )
    info = Catalog(config.infos()).find("mine")
    assert info is not None
    assert not info.reads_history
    assert info.settings is not None
    assert (info.settings[0].name, info.settings[0].above, info.settings[0].at_most) == ("rate", 0.0, 1.0)


def test_an_algorithm_of_the_file_replaces_ours_of_that_name() -> None:
    ours = Catalog()
    config = parse_config('algorithms: [{name: tpe, address: "h:1", summary: Other}]', source="f")

    assert Catalog(config.infos()).find("tpe") == config.algorithms[0].info()
    assert len(Catalog(config.infos()).all()) == len(ours.all())


def test_the_catalog_lists_suggestion_algorithms_first_and_keeps_the_kinds_apart() -> None:
    catalog = Catalog()

    kinds = [info.early_stopping for info in catalog.all()]
    assert kinds == sorted(kinds)
    assert catalog.find("medianstop") is None
    assert catalog.find("medianstop", early_stopping=True) is not None
    assert catalog.find("random") is not None


def test_an_empty_file_plugs_nothing_in() -> None:
    assert parse_config("", source="f") == ServicesConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "algorithms: [{name: a, adress: 'h:1'}]",
            "katib.yaml: algorithms[0].adress: unknown field; did you mean address",
            id="misspelt-field",
        ),
        pytest.param(
            "algorithm: []",
            "katib.yaml: algorithm: unknown field; did you mean algorithms",
            id="misspelt-list",
        ),
        pytest.param(
            "algorithms: [{name: a, address: 'h:1', settings: [{name: x, atMots: 1}]}]",
            "katib.yaml: algorithms[0].settings[0].atMots: unknown field; did you mean atMost",
            id="misspelt-field-of-a-setting",
        ),
        pytest.param("algorithms: [{address: 'h:1'}]", "katib.yaml: algorithms[0].name: missing; set it", id="no-name"),
        pytest.param("- a", "katib.yaml: ['a'] is no mapping; give fields and values", id="list"),
        pytest.param(
            "algorithms: [{name: a, command: python}]",
            "katib.yaml: algorithms[0].command: 'python' is no list; write [one, two]",
            id="command-as-text",
        ),
        pytest.param(
            "algorithms: [{name: a, command: [x",
            "katib.yaml: not YAML: expected ',' or ']', but got '<stream end>' in line 1; mend the file",
            id="not-yaml",
        ),
        pytest.param(
            "algorithms: [{name: A b, address: 'h:1'}]",
            'katib.yaml: algorithms[0].name: "A b" is no name of an algorithm; use lower case letters, digits, - and .',
            id="name",
        ),
        pytest.param(
            "algorithms: [{name: a, address: 'h:1'}, {name: a, address: 'h:2'}]",
            'katib.yaml: algorithms[1].name: suggestion service "a" is also defined by algorithms[0]; keep one of them',
            id="duplicate",
        ),
        pytest.param(
            "algorithms: [{name: a}]",
            "katib.yaml: algorithms[0]: neither command nor address is set; set one of them",
            id="no-way-to-reach-it",
        ),
        pytest.param(
            "algorithms: [{name: a, address: 'h:1', command: [x, '{port}']}]",
            "katib.yaml: algorithms[0]: both command and address are set; set one of them",
            id="two-ways-to-reach-it",
        ),
        pytest.param(
            "algorithms: [{name: a, command: [x]}]",
            "katib.yaml: algorithms[0].command: the command is not told where to listen;"
            ' pass "{port}" or "{address}" to it',
            id="command-without-port",
        ),
        pytest.param(
            "algorithms: [{name: a, address: localhost}]",
            'katib.yaml: algorithms[0].address: "localhost" is no address; write host:port or unix:/path',
            id="address",
        ),
        pytest.param(
            "algorithms: [{name: a, address: 'h:1', settings: [{name: x, type: number}]}]",
            'katib.yaml: algorithms[0].settings[0].type: "number" is no type of a setting;'
            " use int, float, text or bool",
            id="setting-type",
        ),
    ],
)
def test_each_mistake_has_its_line(text: str, message: str) -> None:
    assert _errors(text) == [message]


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidError) as caught:
        read_config(Path("/nonexistent/katib.yaml"))

    assert str(caught.value) == "/nonexistent/katib.yaml: cannot be read: No such file or directory; check the path"


def test_all_mistakes_are_reported_at_once() -> None:
    assert len(_errors("algorithms: [{name: a}, {name: '!', address: x}]")) == 3
