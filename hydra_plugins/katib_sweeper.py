"""A sweeper of Hydra: `hydra/sweeper=katib`.

Hydra imports all modules of `hydra_plugins` whenever one of its programs starts, so the implementation is imported
late, from `katib.integrations.hydra`. Hydra imports before modules are in `sys.modules`, where text annotations are
resolved.
"""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import CompactHydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class KatibSweeperConf:
    """The options of `hydra.sweeper`; the names are those of `katib.create`.

    Attributes:
        params: Search space and constants, by name, in the grammar of Hydra's overrides.
        name: Name of the experiment, continued if it exists; None: the job's name and a random part.
        objective: Name of the metric that the function returns.
        direction: `minimize` or `maximize`.
        objectives: Several objectives instead of one: the direction of each by name.
        algorithm: Proposes parameters; `katib algorithms` lists them, and `auto` chooses one of them.
        max_trials: Number of jobs.
        parallel: Number of parallel jobs; beyond one, each is a process of its own.
        early_stopping: An early stopping algorithm, such as `median`; `katib.report` raises `katib.StopTrial` then.
        options: Further arguments of `katib.create`, such as `settings`, `goal`, `server` or `data_dir`.
    """

    _target_: str = "hydra_plugins.katib_sweeper.KatibSweeper"
    params: dict[str, Any] | None = None
    name: str | None = None
    objective: str = "objective"
    direction: str = "minimize"
    objectives: dict[str, str] | None = None
    algorithm: str = "auto"
    max_trials: int = 20
    parallel: int = 1
    early_stopping: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="katib", node=KatibSweeperConf, provider="katib")


class KatibSweeper(Sweeper):
    """Runs a job for each trial of an experiment.

    Args:
        params: Search space and constants.
        options: The other options.
    """

    def __init__(self, params: DictConfig | None = None, **options: Any) -> None:
        self.params = params or {}
        self.options = options
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Set up the launcher of the configuration."""
        from hydra.core.plugins import Plugins

        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Search; see `katib.integrations.hydra.search_with`.

        Raises:
            CompactHydraException: An option, the search space or the experiment is wrong, in one line.
        """
        from katib.errors import KatibError, one_line
        from katib.integrations.hydra import search_with

        try:
            return search_with(self, arguments)
        except KatibError as error:
            raise CompactHydraException(f"katib: {one_line(error)}") from None
