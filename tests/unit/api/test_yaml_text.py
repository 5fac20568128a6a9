from __future__ import annotations

from typing import Any

import pytest

from katib.errors import InvalidError
from katib.model.configuration import ConfigModel, read_configuration
from katib.model.templates import render
from katib.model.types import ConfigMapSource, TrialTemplate
from katib.model.yaml_text import parse_yaml
from tests.support.refusals import refused


def value_of(text: str) -> Any:
    [document] = parse_yaml(text, "x.yaml")
    return document.data


SCALARS = {
    "1e-3": 0.001,
    "1E5": 100000.0,
    ".5": 0.5,
    "5.": 5.0,
    "+7": 7,
    "-7": -7,
    "0644": 644,
    "010": 10,
    "0o644": 420,
    "0x1F": 31,
    "0b11": "0b11",
    "1_000": "1_000",
    "08": 8,
    "12:30": "12:30",
    "2026-01-31": "2026-01-31",
    "1.2.3": "1.2.3",
    "v1": "v1",
    "yes": "yes",
    "Off": "Off",
    "on": "on",
    "TRUE": True,
    "y": "y",
    "N": "N",
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    ".inf": ".inf",
    "-.inf": "-.inf",
    ".nan": ".nan",
    "1e999": "1e999",
    "9" * 5000: "9" * 5000,
    "_1": "_1",
    "'5'": "5",
    '"true"': "true",
    "!!str 5": "5",
    "!!float 5": 5,
    "=": "=",
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items(), ids=[text[:9] for text in SCALARS])
def test_a_scalar_has_the_meaning_of_the_core_schema(text: str, value: object) -> None:
    read = value_of(f"[{text}]")[0]

    assert (read, type(read)) == (value, type(value))


class _AnyField(ConfigModel):
    field: Any = None


@pytest.mark.parametrize("text", [*SCALARS, "100", "0x100", "1_000.5", "a: b", "'yes'"])
def test_every_reader_makes_the_same_of_a_text(text: str) -> None:
    """An experiment file, a template in a ConfigMap, and a configuration."""
    text = f"[{text}]"
    template = TrialTemplate(config_map=ConfigMapSource(config_map_name="c", template_path="t"))
    rendered = render(template, f"apiVersion: v1\nkind: K\nfield: {text}\n", [], "t", "n")

    read = [value_of(f"field: {text}"), rendered, read_configuration(_AnyField, f"field: {text}", "x").model_dump()]

    values = [obj["field"][0] for obj in read]
    assert [(value, type(value)) for value in values] == [(values[0], type(values[0]))] * 3


def test_a_key_that_appears_twice_is_refused_by_every_reader() -> None:
    template = TrialTemplate(config_map=ConfigMapSource(config_map_name="c", template_path="t"))
    text = "field: 1\nfield: 2\n"

    for read in (
        lambda: parse_yaml(text, "x"),
        lambda: render(template, text, [], "t", "n"),
        lambda: read_configuration(_AnyField, text, "x"),
    ):
        with pytest.raises(InvalidError, match="appears twice"):
            read()


def test_blocks_keys_aliases_and_merges_are_read_as_written() -> None:
    assert value_of("a: |\n  5\nb: >-\n  true\n") == {"a": "5\n", "b": "true"}

    assert value_of("{1: a, true: b, on: c, 1.5: d}") == {"1": "a", "true": "b", "on": "c", "1.5": "d"}

    assert value_of("a: &x {b: [1]}\nc: *x\n") == {"a": {"b": [1]}, "c": {"b": [1]}}

    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\n"

    assert value_of(text)["c"] == {"x": 3, "y": 1, "z": 2}

    assert value_of("'<<': 1\n") == {"<<": 1}


def test_anchors_end_with_their_document_and_complex_keys_are_refused() -> None:
    with refused("file-syntax"):
        parse_yaml("a: &x 1\n---\nb: *x\n", "x.yaml")

    with refused("file-syntax"):
        parse_yaml("? [a]\n: b\n", "x.yaml")


MERGES = {
    "no mapping": ("<<: 5", "<< does not name a mapping"),
    "a list with a number": ("a: &a {}\nb: {<<: [*a, 5]}", "<< does not name a mapping"),
    "twice": ("a: &a {}\nb: {<<: *a, <<: *a}", 'key "<<" appears twice'),
}


@pytest.mark.parametrize(("text", "cause"), MERGES.values(), ids=MERGES)
def test_a_merge_that_makes_no_sense_is_refused(text: str, cause: str) -> None:
    with pytest.raises(InvalidError, match=cause):
        parse_yaml(text, "x.yaml")


def test_a_byte_order_mark_and_trailing_commas_of_json_are_skipped() -> None:
    assert parse_yaml(b"\xef\xbb\xbfa: 1", "x.yaml")[0].data == {"a": 1}
    assert parse_yaml("\ufeffa: 1", "x.yaml")[0].data == {"a": 1}

    assert value_of('{"a": 1, # one\n}') == {"a": 1}

    found = parse_yaml("# head\na: 1\n---\n---\n\nb: 2\n", "x.yaml")

    assert [(document.line, document.data) for document in found] == [(2, {"a": 1}), (6, {"b": 2})]
