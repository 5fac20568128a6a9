"""What `darts` tells the training, letter for letter."""

from __future__ import annotations

import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from tests.support.architectures import an_architecture_search, an_operation
from tests.support.suggestion import Status, a_parameter, a_trial, served_here

DEFAULTS = (
    "{'num_epochs': 50, 'w_lr': 0.025, 'w_lr_min': 0.001, 'w_momentum': 0.9, 'w_weight_decay': 0.0003, "
    "'w_grad_clip': 5.0, 'alpha_lr': 0.0003, 'alpha_weight_decay': 0.001, 'batch_size': 128, 'num_workers': 4, "
    "'init_channels': 16, 'print_step': 50, 'num_nodes': 4, 'stem_multiplier': 3}"
)
OPERATIONS = [
    an_operation("separable_convolution", a_parameter("filter_size", pb.CATEGORICAL, list=["3", "5"])),
    an_operation("skip_connection"),
    an_operation("max_pooling", a_parameter("size", pb.INT, min="3", max="5", step="2"), a_parameter("b", pb.INT)),
]


def test_settings_operations_and_layers_are_told_as_the_training_reads_them() -> None:
    with served_here("darts") as service:
        (point,) = service.ask(an_architecture_search("darts", OPERATIONS, layers=8))

    assert list(point.items()) == [
        ("algorithm-settings", DEFAULTS),
        (
            "search-space",
            (
                "['separable_convolution_3x3', 'separable_convolution_5x5', 'skip_connection', "
                "'max_pooling_3x3', 'max_pooling_5x5']"
            ),
        ),
        ("num-layers", "8"),
    ]


@pytest.mark.parametrize(
    ("settings", "old", "new"),
    [
        pytest.param({"num_epochs": "3"}, "'num_epochs': 50", "'num_epochs': '3'", id="text-as-given"),
        pytest.param({"w_lr": "2.5e-2"}, "'w_lr': 0.025", "'w_lr': '2.5e-2'", id="number-as-written"),
        pytest.param({"batch_size": "None"}, "'batch_size': 128", "'batch_size': null", id="none"),
        pytest.param({"num_epoch": "7"}, "3}", "3, 'num_epoch': '7'}", id="unknown-is-forwarded"),
    ],
)
def test_what_the_user_gives_replaces_a_default(settings: dict[str, str], old: str, new: str) -> None:
    experiment = an_architecture_search("darts", settings=settings)
    with served_here("darts") as service:
        service.validate(experiment)
        (point,) = service.ask(experiment)

    assert point["algorithm-settings"] == DEFAULTS.replace(old, new)


def test_every_request_is_answered() -> None:
    experiment = an_architecture_search("darts")
    with served_here("darts") as service:
        first = service.ask(experiment)
        trials = [a_trial("t0", first[0], condition=Status.FAILED)]
        second = service.ask(experiment, trials, count=3)

    assert second == first * 3
