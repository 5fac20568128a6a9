from __future__ import annotations

import pytest

from katib.tuning.drafting import parse_parameter
from katib.tuning.script_options import direction_of, metrics_of_output, options_of_help, options_of_source

ARGPARSE = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.01)
p.add_argument("-l", "--layers", type=int, default=2)
p.add_argument("--momentum", default=0.9)
p.add_argument("--scale", type=float, default=2.0)
p.add_argument("--opt", choices=["adam", "sgd"])
p.add_argument("--seed", type=int, default=0)
p.add_argument("--data-dir", default="data")
p.add_argument("--fast", action="store_true")
p.add_argument("input")
"""


def test_options_of_argparse_get_ranges_around_their_defaults() -> None:
    found = [str(option) for option in options_of_source(ARGPARSE)]

    assert found == [
        "lr=0.001..0.1:log",
        "layers=1..8",
        "momentum=0.09..9:log",
        "scale=0.5..8:double",
        "opt=adam,sgd",
    ]
    assert all(parse_parameter(text) for text in found)


def test_options_of_click_are_read_too() -> None:
    source = "import click\n@click.option('--opt', type=click.Choice(['a', 'b']))\ndef main(opt): ...\n"

    assert [str(option) for option in options_of_source(source)] == ["opt=a,b"]


def test_a_script_that_cannot_be_read_declares_nothing() -> None:
    assert options_of_source("def (") == []


def test_choices_are_found_in_what_help_prints() -> None:
    text = "options:\n  -h, --help            show this help\n  --opt {adam,sgd}  which\n  --lr LR\n"

    assert [str(option) for option in options_of_help(text)] == ["opt=adam,sgd"]


def test_metrics_are_what_is_printed_as_name_and_number_and_validation_comes_first() -> None:
    assert metrics_of_output("epoch=1 loss=0.5 val_accuracy=0.9\nname=x") == ["val_accuracy", "loss"]


@pytest.mark.parametrize(("metric", "way"), [("val_loss", "minimize"), ("accuracy", "maximize"), ("RMSE", "minimize")])
def test_the_direction_follows_from_the_name(metric: str, way: str) -> None:
    assert direction_of(metric) == way
