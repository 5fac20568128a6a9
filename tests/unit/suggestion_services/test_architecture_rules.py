"""What the services of architecture searches refuse: one line, which names the field, the cause and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from katib.wire.rpc._generated import api_pb2 as pb
from tests.support.architectures import an_architecture_search, an_operation
from tests.support.golden import Golden
from tests.support.refusals import INVALID, refusal
from tests.support.suggestion import Service, a_parameter, an_experiment, each_served_here

GRAPH, FIRST = "spec.nasConfig.graphConfig", "spec.nasConfig.operations[0]"
SPACE = f"{FIRST}.parameters[0].feasibleSpace"


@pytest.fixture(scope="module")
def served() -> Iterator[Callable[[str], Service]]:
    with each_served_here() as serve:
        yield serve


def why(service: Service, experiment: pb.Experiment) -> str:
    """Return why an experiment is refused, the same by both calls."""
    code, text = refusal(service.validate, experiment)
    assert (code, text) == refusal(service.ask, experiment)
    assert code is INVALID
    assert "\n" not in text
    return text


def with_parameter(*, name: str = "size", kind: int = pb.CATEGORICAL, **space: object) -> dict[str, object]:
    return {"operations": [an_operation("pool", a_parameter(name, kind, **(space or {"step": ""})))]}


SIZES = [pytest.param({"input_sizes": ()}, id="input"), pytest.param({"output_sizes": ()}, id="output")]
RULES = [
    pytest.param({"layers": 0}, id="layers"),
    pytest.param({"layers": -2}, id="layers-negative"),
    pytest.param({"operations": []}, id="none"),
    pytest.param({"operations": [an_operation("")]}, id="type"),
    pytest.param({"operations": [pb.Operation(operation_type="pool")]}, id="no-parameters"),
    pytest.param(with_parameter(name="", list=["3"]), id="name"),
    pytest.param(with_parameter(kind=pb.UNKNOWN_TYPE, list=["3"]), id="unset"),
    pytest.param(with_parameter(), id="no-list"),
    pytest.param(with_parameter(kind=pb.DISCRETE), id="no-list-discrete"),
    pytest.param(with_parameter(kind=pb.INT), id="no-bounds"),
    pytest.param(with_parameter(kind=pb.INT, min="1.5", max="2"), id="not-whole"),
    pytest.param(with_parameter(kind=pb.DOUBLE, min="a", max="2", step="1"), id="text"),
    pytest.param(with_parameter(kind=pb.DOUBLE, min="1", max="2"), id="no-step"),
    pytest.param(with_parameter(kind=pb.DOUBLE, min="1", max="2", step="x"), id="step-text"),
    pytest.param(with_parameter(kind=pb.DOUBLE, min="1", max="2", step="0"), id="step-zero"),
    pytest.param(with_parameter(kind=pb.INT, min="1", max="2", step="-1"), id="step-negative"),
]


@pytest.mark.parametrize("fields", [*SIZES, *RULES])
def test_enas_refuses(served: Callable[[str], Service], fields: dict[str, object], golden: Golden) -> None:
    golden(why(served("enas"), an_architecture_search("enas", **fields)))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("fields", RULES)
def test_darts_refuses(served: Callable[[str], Service], fields: dict[str, object], golden: Golden) -> None:
    golden(why(served("darts"), an_architecture_search("darts", **fields)))  # type: ignore[arg-type]  # by name


def test_everything_wrong_with_the_graph_is_said_before_operations_and_settings(
    served: Callable[[str], Service],
) -> None:
    experiment = an_architecture_search(
        "enas", [an_operation("")], layers=0, input_sizes=(), output_sizes=(), settings={"x": 1}
    )

    parts = [part.split(": ")[0] for part in why(served("enas"), experiment).split("; spec")]

    assert parts == [
        f"{GRAPH}.inputSizes",
        ".nasConfig.graphConfig.outputSizes",
        ".nasConfig.graphConfig.numLayers",
        ".nasConfig.operations[0].operationType",
    ]


def test_bounds_in_the_wrong_order_are_taken_as_katibs_services_accept_them(served: Callable[[str], Service]) -> None:
    fields = with_parameter(kind=pb.INT, min="3", max="2", step="1")
    experiment = an_architecture_search("enas", layers=1, **fields)  # type: ignore[arg-type]  # by name
    service = served("enas")

    service.validate(experiment)

    assert {point["architecture"] for point in service.ask(experiment, count=20)} == {"[[0]]", "[[1]]"}


ABOVE_ZERO = ("controller_temperature", "controller_tanh_const", "controller_entropy_weight", "controller_skip_weight")
SHARES = ("controller_baseline_decay", "controller_learning_rate", "controller_skip_target")
COUNTS = ("controller_hidden_size", "controller_train_steps", "controller_log_every_steps")
DARTS_FLOATS = ("w_lr", "w_lr_min", "w_momentum", "w_weight_decay", "w_grad_clip", "alpha_lr", "alpha_weight_decay")
DARTS_COUNTS = ("batch_size", "init_channels", "print_step", "num_nodes", "stem_multiplier")


@pytest.mark.parametrize(
    ("algorithm", "name", "value"),
    [
        *(("enas", name, value) for name in ABOVE_ZERO for value in ("0", "-1", "x", "nan", "none")),
        *(("enas", name, value) for name in SHARES for value in ("0", "1.01", "x", "None")),
        *(("enas", name, value) for name in COUNTS for value in ("0", "1.5", "None")),
        ("enas", "controller_size", "3"),
        *(("darts", name, value) for name in DARTS_FLOATS for value in ("-0.1", "x", "None")),
        *(("darts", name, value) for name in DARTS_COUNTS for value in ("0", "1.5")),
        ("darts", "num_epochs", "0"),
        ("darts", "num_workers", "-1"),
        ("darts", "num_workers", "None"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    served: Callable[[str], Service], algorithm: str, name: str, value: str
) -> None:
    experiment = an_architecture_search(algorithm, settings={name: value})

    assert name in why(served(algorithm), experiment)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("enas", {**dict.fromkeys(ABOVE_ZERO, "None"), **dict.fromkeys(SHARES, "1"), **dict.fromkeys(COUNTS, "1")}),
        ("darts", {**dict.fromkeys(DARTS_FLOATS, "0"), "batch_size": "None", "num_workers": "0", "num_epochs": "1"}),
    ],
)
def test_settings_at_their_bounds_are_accepted(
    served: Callable[[str], Service], algorithm: str, settings: dict[str, str]
) -> None:
    experiment = an_architecture_search(algorithm, settings=settings)
    served(algorithm).validate(experiment)

    assert len(served(algorithm).ask(experiment)) == 1


def test_sizes_without_sense_are_refused_before_the_memory_is_full(
    served: Callable[[str], Service], golden: Golden
) -> None:
    values = a_parameter("size", pb.INT, min="1", max="1000000", step="1")

    many = why(served("enas"), an_architecture_search(operations=[an_operation("pool", values, values)]))
    deep = why(served("enas"), an_architecture_search(layers=100_000))

    assert many.startswith("spec.nasConfig.operations: 1000000000000 operations with their values are more than 10000")
    golden(deep)


@pytest.mark.parametrize("algorithm", ["random", "grid", "tpe", "hyperband"])
def test_other_algorithms_refuse_architectures(
    served: Callable[[str], Service], algorithm: str, golden: Golden
) -> None:
    golden(why(served(algorithm), an_architecture_search(algorithm)))


@pytest.mark.parametrize("algorithm", ["enas", "darts"])
def test_architecture_searches_refuse_parameters(served: Callable[[str], Service], algorithm: str) -> None:
    assert "graphConfig.numLayers: it is missing" in why(served(algorithm), an_experiment(algorithm))
