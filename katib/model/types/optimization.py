"""The kind OptimizationJob of `trainer.kubeflow.org/v1alpha1`, as Kubeflow Trainer defines it."""

from __future__ import annotations

from typing import Any

from msgspec import field

from katib.model.types.blocks import ParameterAssignment
from katib.model.types.model import Int32, Model, OpenModel
from katib.model.types.resources import Condition, Resource

TRAINER_API_VERSION = "trainer.kubeflow.org/v1alpha1"


class JobObjective(Model, frozen=True):
    """The metric to optimize, and the direction."""

    metric: str = ""
    direction: str = ""


class RandomSearch(Model, frozen=True):
    """Random search."""

    seed: int | None = None


class GridSearch(Model, frozen=True):
    """Search of every combination."""


class SearchAlgorithm(Model, frozen=True):
    """The search algorithm; exactly one of its fields is given."""

    random: RandomSearch | None = None
    grid: GridSearch | None = None


class NumericSpace(Model, frozen=True):
    """The numbers between two bounds, which are decimal text."""

    min: str = ""
    max: str = ""
    type: str = ""


class CategoricalSpace(Model, frozen=True):
    """Texts to choose from."""

    choices: tuple[str, ...] = ()


class JobSearchSpace(Model, frozen=True):
    """The values of a parameter; exactly one of its fields is given."""

    uniform: NumericSpace | None = None
    log_uniform: NumericSpace | None = None
    categorical: CategoricalSpace | None = None


class JobParameter(Model, frozen=True):
    """One parameter."""

    name: str = ""
    search_space: JobSearchSpace = field(default_factory=JobSearchSpace)


class OptimizationJobSpec(Model, frozen=True):
    """A search whose trials are TrainJobs. Only suspend can be changed."""

    objectives: tuple[JobObjective, ...] = ()
    search_algorithm: SearchAlgorithm | None = None
    parameters: tuple[JobParameter, ...] = ()
    num_trials: Int32 | None = None
    parallel_trials: Int32 | None = None
    train_job_template: dict[str, Any] = field(default_factory=dict)
    suspend: bool = False
    managed_by: str = ""


class JobResult(OpenModel, frozen=True):
    """The best trial so far."""

    train_job_name: str = ""
    parameters: tuple[ParameterAssignment, ...] = ()


class OptimizationJobStatus(OpenModel, frozen=True):
    """State of the search."""

    conditions: tuple[Condition, ...] = ()
    result: JobResult | None = None


class OptimizationJob(Resource, frozen=True):
    """A search for the best parameters of a TrainJob."""

    api_version: str = TRAINER_API_VERSION
    spec: OptimizationJobSpec = field(default_factory=OptimizationJobSpec)
    status: OptimizationJobStatus = field(default_factory=OptimizationJobStatus)
