"""Requests of architecture searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from katib.wire.rpc._generated import api_pb2 as pb
from tests.support.suggestion import a_parameter


def an_operation(kind: str, *parameters: pb.ParameterSpec) -> pb.Operation:
    """Return an operation; without parameters it has a filter of size 3."""
    return pb.Operation(
        operation_type=kind,
        parameter_specs=pb.Operation.ParameterSpecs(
            parameters=parameters or [a_parameter("filter_size", pb.CATEGORICAL, list=["3"])]
        ),
    )


def an_architecture_search(
    algorithm: str = "enas",
    operations: Sequence[pb.Operation] | None = None,
    *,
    name: str = "demo",
    layers: int = 3,
    input_sizes: Sequence[int] = (32, 32, 3),
    output_sizes: Sequence[int] = (10,),
    settings: Mapping[str, object] | None = None,
    maximize: bool = True,
) -> pb.Experiment:
    """Return an experiment that searches networks of two operations, unless told otherwise."""
    if operations is None:
        operations = [an_operation("convolution"), an_operation("reduction")]
    return pb.Experiment(
        name=name,
        spec=pb.ExperimentSpec(
            objective=pb.ObjectiveSpec(type=pb.MAXIMIZE if maximize else pb.MINIMIZE, objective_metric_name="loss"),
            algorithm=pb.AlgorithmSpec(
                algorithm_name=algorithm,
                algorithm_settings=[
                    pb.AlgorithmSetting(name=key, value=str(value)) for key, value in (settings or {}).items()
                ],
            ),
            nas_config=pb.NasConfig(
                graph_config=pb.GraphConfig(num_layers=layers, input_sizes=input_sizes, output_sizes=output_sizes),
                operations=pb.NasConfig.Operations(operation=operations),
            ),
        ),
    )
