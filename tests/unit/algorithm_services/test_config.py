from __future__ import annotations

from pathlib import Path

import pytest

from katib.engine.algorithm_services.catalog import Catalog, MachineSettings
from katib.engine.algorithm_services.config import ServicesConfig, read_config, settings_of
from katib.engine.algorithm_services.plan import SUGGESTION_HEALTH, ServiceId
from katib.engine.algorithm_services.readiness import ServiceTiming
from katib.errors import FieldError, InvalidError
from katib.model.configuration import read_configuration
from tests.support.golden import Golden

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


def _errors(text: str) -> list[FieldError]:
    with pytest.raises(InvalidError) as caught:
        read_configuration(ServicesConfig, text, "katib.yaml")
    return list(caught.value.errors)


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


def test_an_algorithm_of_the_file_replaces_ours_and_an_empty_file_plugs_nothing_in() -> None:
    ours = Catalog()
    config = read_configuration(ServicesConfig, 'algorithms: [{name: tpe, address: "h:1", summary: Other}]', "f")

    assert Catalog(config.infos()).find("tpe") == config.algorithms[0].info()
    assert len(Catalog(config.infos()).all()) == len(ours.all())

    assert read_configuration(ServicesConfig, "", "f") == ServicesConfig()
    assert settings_of(ServicesConfig(), Path()) == MachineSettings()


def test_the_catalog_lists_suggestion_algorithms_first_and_keeps_the_kinds_apart() -> None:
    catalog = Catalog()

    kinds = [info.early_stopping for info in catalog.all()]
    assert kinds == sorted(kinds)
    assert catalog.find("medianstop") is None
    assert catalog.find("medianstop", early_stopping=True) is not None
    assert catalog.find("random") is not None


MISTAKES = {
    "misspelt field": ("algorithms: [{name: a, adress: 'h:1'}]", "algorithms[0].adress", "config-field"),
    "misspelt list": ("algorithm: []", "algorithm", "config-field"),
    "misspelt field of a setting": (
        "algorithms: [{name: a, address: 'h:1', settings: [{name: x, atMots: 1}]}]",
        "algorithms[0].settings[0].atMots",
        "config-field",
    ),
    "no name": ("algorithms: [{address: 'h:1'}]", "algorithms[0].name", "config-missing"),
    "list": ("- a", "", "config-type"),
    "command as text": ("algorithms: [{name: a, command: python}]", "algorithms[0].command", "config-type"),
    "not yaml": ("algorithms: [{name: a, command: [x", "2:1", "file-syntax"),
    "two documents": ("algorithms: []\n---\nalgorithms: []", "", "document-count"),
    "name": ("algorithms: [{name: A b, address: 'h:1'}]", "algorithms[0].name", "config-name"),
    "duplicate": (
        "algorithms: [{name: a, address: 'h:1'}, {name: a, address: 'h:2'}]",
        "algorithms[1].name",
        "config-duplicate",
    ),
    "no way to reach it": ("algorithms: [{name: a}]", "algorithms[0]", "config-command-or-address"),
    "two ways to reach it": (
        "algorithms: [{name: a, address: 'h:1', command: [x, '{port}']}]",
        "algorithms[0]",
        "config-command-or-address",
    ),
    "command without port": ("algorithms: [{name: a, command: [x]}]", "algorithms[0].command", "config-command-listen"),
    "address": ("algorithms: [{name: a, address: localhost}]", "algorithms[0].address", "config-address"),
    "setting type": (
        "algorithms: [{name: a, address: 'h:1', settings: [{name: x, type: number}]}]",
        "algorithms[0].settings[0].type",
        "config-setting-type",
    ),
}


@pytest.mark.parametrize(("text", "field", "origin"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_named_where_it_stands(text: str, field: str, origin: str) -> None:
    [error] = _errors(text)

    assert error.path.removeprefix("katib.yaml").lstrip(": ") == field
    assert error.origin == origin


def test_files_without_a_mistake_of_form_are_told_too(golden: Golden) -> None:
    [error] = _errors("algorithms: [{name: a, adress: 'h:1'}]")

    assert error.remedy.startswith("did you mean address?")

    with pytest.raises(InvalidError) as caught:
        read_config(Path("/nonexistent/katib.yaml"))

    golden(caught.value)

    assert len(_errors("algorithms: [{name: a}, {name: '!', address: x}]")) == 3


def test_a_service_may_be_given_more_or_less_patience(tmp_path: Path) -> None:
    patient = "{name: slow, address: 'slow:1', startSeconds: 300, callSeconds: 0.5}"
    text = f"algorithms: [{patient}, {{name: usual, address: 'u:1'}}]"
    slow, usual = read_configuration(ServicesConfig, text, "katib.yaml").plans(tmp_path).values()

    assert (ServiceTiming().of(slow).start, ServiceTiming().of(slow).call) == (300, 0.5)
    assert ServiceTiming().of(usual) == ServiceTiming()


@pytest.mark.parametrize("seconds", ["0", "-1", ".nan", ".inf"])
def test_patience_is_a_time(seconds: str) -> None:
    errors = _errors(f"algorithms: [{{name: a, address: 'a:1', callSeconds: {seconds}}}]")

    assert [error.path for error in errors] == ["katib.yaml: algorithms[0].callSeconds"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", (10 << 20, 5), id="as the kubelet's"),
        pytest.param("{containerLogMaxSize: 1.5Mi, containerLogMaxFiles: 2}", (3 << 19, 2), id="set"),
        pytest.param("containerLogMaxSize: 4096", (4096, 5), id="bytes"),
    ],
)
def test_how_much_output_is_kept_may_be_set(text: str, expected: tuple[int, int]) -> None:
    config = read_configuration(ServicesConfig, text, "katib.yaml")

    assert (config.container_log_max_bytes, config.container_log_max_files) == expected


def test_a_limit_of_output_that_keeps_nothing_is_refused(golden: Golden) -> None:
    golden(_errors("{containerLogMaxSize: 10MB, containerLogMaxFiles: 1}"))
    assert _errors("containerLogMaxSize: [1]")
    assert [error.origin for error in _errors("containerLogMaxSize: 0")] == ["config-log-size"]
