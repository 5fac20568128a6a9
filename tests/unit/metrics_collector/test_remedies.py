from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from metrics_collector.parsers import LineParser, TextParser
from metrics_collector.parsers.json_lines import JsonParser
from metrics_collector.remedies import remedies
from tests.support.golden import Golden

BLANK_BEFORE_COLON = r"(\w+\s\w+)\s:\s([\d.]+)"
NO_EXPONENT = r"([\w|-]+)\s*=\s*((-?\d+)(\.\d+)?)"


def proposed(metric: str, text: str, filters: Sequence[str] = ()) -> list[str]:
    parser = TextParser([metric], filters)
    parser.feed(text.encode())
    parser.finish()
    return remedies(metric, parser, text.splitlines())


def readings_after(remedy: str, metric: str, text: str, filters: Sequence[str]) -> list[str]:
    """Apply a remedy as a user does: with the name and the pattern that it quotes."""
    if name := re.search(r'name "([^"]+)"', remedy):
        metric = name[1]
    if "remove metricsFormat" in remedy:
        filters = ()
    if pattern := re.search(r"(?:give|add) '([^']+)'", remedy):
        filters = [*filters, pattern[1]]
    if printed := re.search(r"print lines such as `(.+?)`", remedy):
        text = printed[1]
    elif "print plain numbers" in remedy:
        text = f"{metric}=1234.5"
    parser: LineParser = TextParser([metric], filters)
    return [log.value for log in [*parser.feed(text.encode()), *parser.finish()]]


@pytest.mark.parametrize(
    ("metric", "text", "filters", "first"),
    [
        pytest.param("loss", "train loss: 1, val loss: 2", [], 'name "train loss" or "val loss"', id="ambiguous"),
        pytest.param("loss", "Loss: 0.21", [], 'name "Loss"', id="spelling"),
        pytest.param("loss", "it's loss 0.21", [], r"give '(loss)\s+(", id="no sign"),
        pytest.param("val's loss", "val's loss is -0.21", [], r"give '(val\x27s loss)\s+is\s+(", id="a word between"),
        pytest.param("loss", "loss -> 3e-4", [], "give '(loss)", id="arrow"),
        pytest.param("loss", "loss=1/2", [], "print plain numbers", id="no number"),
        pytest.param("loss", "nothing", [], "print lines such as `loss=0.5`", id="nothing"),
        pytest.param("loss", "loss=2e-07", [NO_EXPONENT], "remove metricsFormat", id="exponent"),
        pytest.param(
            "unseen auc", "[1] seen auc: 0.9 unseen auc: 0.3", [BLANK_BEFORE_COLON], "remove metricsFormat", id="blanks"
        ),
        pytest.param(
            "unseen auc", "[1] unseen's auc: 0.3", [BLANK_BEFORE_COLON], "remove metricsFormat", id="another name"
        ),
        pytest.param("accuracy", "my acc : 0.3", [BLANK_BEFORE_COLON], 'name "my acc"', id="the pattern's name"),
        pytest.param("auc", "auc is 3", [BLANK_BEFORE_COLON], "add '(auc)", id="beside a pattern"),
    ],
)
def test_each_remedy_reads_the_metric(metric: str, text: str, filters: list[str], first: str) -> None:
    found = proposed(metric, text, filters)

    assert found[0].startswith(first)
    for remedy in found:
        assert readings_after(remedy, metric, text, filters), remedy


def test_a_pattern_is_not_given_up_when_another_metric_needs_it() -> None:
    parser = TextParser(["loss", "acc"], [r"(acc) is ([\d.]+)"])

    found = remedies("loss", parser, ["loss=0.5", "acc is 3"])

    assert not [remedy for remedy in found if remedy.startswith("remove")]


def test_the_keys_of_json_are_proposed_as_they_are_read(golden: Golden) -> None:
    found = remedies("loss", JsonParser(["loss"]), ['{"val_loss": 0.5, "loss_name": "mse"}', "train_loss: 0.3"])

    golden(found)
