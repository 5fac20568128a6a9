"""Rules about `nasConfig`, the search space of an architecture search: layers and their operations.

Services and submission share these rules. Services check the parameters of operations no further than Katib's do; the
stricter rules of `katib.model.search_space` apply at submission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from katib.errors import FieldError
from katib.model.metrics import is_usable
from katib.model.types import FeasibleSpace, NasConfig, Operation, ParameterSpec, ParameterType

PATH = "spec.nasConfig"
PLAIN_OPERATION = "skip_connection"
"""The operation of Katib's examples that needs no parameters."""

_LISTED = (ParameterType.DISCRETE, ParameterType.CATEGORICAL)
_GRAPH_REMEDIES = {
    "inputSizes": "give height, width and channels, such as [32, 32, 3]",
    "outputSizes": "give the number of classes, such as [10]",
    "numLayers": "give the number of layers, at least 1",
}


def check_architecture(config: NasConfig, graph_fields: Sequence[str]) -> Iterator[FieldError]:
    """Yield errors in the search space of an architecture, in the order of the checks in Katib's services.

    Args:
        config: The experiment's `nasConfig`.
        graph_fields: Fields of `graphConfig` that the algorithm needs.
    """
    yield from check_graph(config, graph_fields)
    for i, operation in enumerate(config.operations):
        path = f"{PATH}.operations[{i}]"
        yield from _check_frame(operation, path)
        for j, parameter in enumerate(operation.parameters):
            yield from _check_parameter(parameter, f"{path}.parameters[{j}]")
            yield from _check_step(parameter, f"{path}.parameters[{j}]")


def check_beyond_parameters(config: NasConfig, graph_fields: Sequence[str]) -> Iterator[FieldError]:
    """Yield the errors that the rules of parameter search spaces do not cover."""
    yield from check_graph(config, graph_fields)
    for i, operation in enumerate(config.operations):
        path = f"{PATH}.operations[{i}]"
        yield from _check_frame(operation, path)
        for j, parameter in enumerate(operation.parameters):
            if not parameter.feasible_space.step:  # an invalid step is reported with the bounds
                yield from _check_step(parameter, f"{path}.parameters[{j}]")


def check_graph(config: NasConfig, graph_fields: Sequence[str]) -> Iterator[FieldError]:
    """Yield errors for missing fields of `graphConfig` and for an empty list of operations."""
    graph = config.graph_config
    given = {
        "inputSizes": bool(graph.input_sizes),
        "outputSizes": bool(graph.output_sizes),
        "numLayers": (graph.num_layers or 0) > 0,
    }
    for name in ("inputSizes", "outputSizes", "numLayers"):
        if name in graph_fields and not given[name]:
            cause = "it is missing" if name != "numLayers" or not graph.num_layers else f"{graph.num_layers} is below 1"
            yield FieldError(f"{PATH}.graphConfig.{name}", cause, _GRAPH_REMEDIES[name], "graph-incomplete")
    if not config.operations:
        remedy = "list what a layer may be, such as operationType convolution with its filter_size"
        yield FieldError(f"{PATH}.operations", "it is empty", remedy, "operations-missing")


def _check_frame(operation: Operation, path: str) -> Iterator[FieldError]:
    if not operation.operation_type.strip():
        remedy = "name the operation, such as convolution"
        yield FieldError(f"{path}.operationType", "it is missing", remedy, "operation-type-missing")
    if not operation.parameters and operation.operation_type != PLAIN_OPERATION:
        remedy = "list at least one, such as filter_size"
        yield FieldError(f"{path}.parameters", "it is empty", remedy, "operation-parameters-missing")


def _check_parameter(parameter: ParameterSpec, path: str) -> Iterator[FieldError]:
    kind, space = parameter.parameter_type, parameter.feasible_space
    if not parameter.name.strip():
        yield FieldError(f"{path}.name", "it is missing", "name the parameter", "parameter-name-missing")
    if kind not in tuple(ParameterType):
        remedy = "use double, int, discrete or categorical"
        yield FieldError(f"{path}.parameterType", "it is missing", remedy, "parameter-type")
    elif kind in _LISTED and not space.list:
        yield FieldError(f"{path}.feasibleSpace.list", "it is empty", "list at least one value", "list-empty")
    elif kind not in _LISTED:
        yield from _check_bounds(kind, space, f"{path}.feasibleSpace")


def _check_bounds(kind: str, space: FeasibleSpace, path: str) -> Iterator[FieldError]:
    texts = {"min": space.min, "max": space.max}
    if kind == ParameterType.INT and space.step:
        texts["step"] = space.step
    for name, text in texts.items():
        if not text:
            yield FieldError(f"{path}.{name}", "it is missing", f"give {name}", "bounds-missing")
        elif not is_usable(text):
            yield FieldError(f"{path}.{name}", f"{text} is not a finite number", "write a number", "bound-not-number")
        elif kind == ParameterType.INT and not float(text).is_integer():
            cause = f"{text} is not a whole number"
            yield FieldError(f"{path}.{name}", cause, "write one, or use double", "bound-not-whole")
    if kind == ParameterType.INT and is_usable(space.step) and float(space.step) < 1:
        yield FieldError(f"{path}.step", f"{space.step} is not above 0", "use a positive step", "step-not-positive")


def _check_step(parameter: ParameterSpec, path: str) -> Iterator[FieldError]:
    """Check that a double has a step: the operations of a search are a list."""
    step, where = parameter.feasible_space.step, f"{path}.feasibleSpace.step"
    if parameter.parameter_type != ParameterType.DOUBLE:
        return
    if not step:
        remedy = "give the distance of its values, or use categorical"
        yield FieldError(where, "a double of an operation needs one", remedy, "operation-step-missing")
    elif not is_usable(step):
        yield FieldError(where, f"{step} is not a finite number", "write a number", "bound-not-number")
    elif float(step) <= 0:
        yield FieldError(where, f"{step} is not above 0", "use a positive step", "step-not-positive")
