"""The list of algorithms: name, supported features and class path of each.

Importing the list is cheap; settings, and a class with its libraries, are imported on first use. To add an algorithm,
write a class and add an entry here (`docs/reference/algorithms.md`); its settings are in `setting_specs.py`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec import structs

from katib.errors import NotFoundError, TerminalError
from katib.model.algorithms import RANDOM_STATE, SEED, AlgorithmInfo, Feature


@dataclass(frozen=True)
class ListedAlgorithm:
    """An algorithm of the list.

    Attributes:
        listed: Its description, without the settings that `settings` names, and those that all algorithms have.
        path: Dotted path of its class.
        rules: Dotted path of its rules, in a module that imports quickly; empty if it has none beyond its settings.
        package: The optional module that it needs; empty if there is none.
        servicer_path: Dotted path of a gRPC servicer of its own, for an early stopping algorithm.
        settings: Name of its settings in `setting_specs.py`; empty if the description has them.
    """

    listed: AlgorithmInfo
    path: str
    rules: str = ""
    package: str = ""
    servicer_path: str = ""
    settings: str = ""

    @cached_property
    def info(self) -> AlgorithmInfo:
        """Its full description: a suggestion algorithm has a `seed`, and earlier trials if it learns."""
        info = self.listed
        if self.settings:
            info = structs.replace(info, settings=_imported(f"suggestion_services.setting_specs:{self.settings}"))
        if info.early_stopping:
            return info
        learns = (Feature.EARLIER_TRIALS,) if info.reads_history and not info.graph_fields else ()
        return structs.replace(info, settings=(*(info.settings or ()), SEED), features=(*info.features, *learns))

    def load(self) -> Any:
        """Import and return the class: an `Algorithm`, or for early stopping a `StoppingAlgorithm`."""
        return _imported(self.path)

    def load_rules(self) -> Any:
        return _imported(self.rules or "suggestion_services.base.algorithm:Rules")

    def servicer(self) -> Any:
        """Return the gRPC `StoppingServicer` of an early stopping algorithm."""
        if self.servicer_path:
            return _imported(self.servicer_path)()
        return _imported("suggestion_services.early_stopping.servicer:StoppingServicer")(self.info, self.load)

    @property
    def is_installed(self) -> bool:
        """Whether the optional package, if it needs one, is installed."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    @property
    def install_command(self) -> str:
        """The command that installs the package, with a verb."""
        return f"run pip install {_DISTRIBUTIONS[self.package]}"

    def check_installed(self) -> None:
        """Raise TerminalError, with the command to run, if a package is missing."""
        if not self.is_installed:
            raise TerminalError(f"{self.listed.name}: the package {self.package} is missing; {self.install_command}")


_DISTRIBUTIONS = {"skopt": "scikit-optimize"}

_importing = threading.RLock()
"""SciPy's modules import each other: two threads that import two of them can see a partially initialized module."""


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    with _importing:
        return getattr(importlib.import_module(module), name)


_ECHOED = ("b_l", "n", "r", "current_s", "current_i", "evaluating_trials")

ENTRIES: tuple[ListedAlgorithm, ...] = (
    ListedAlgorithm(
        AlgorithmInfo(
            "random",
            "Independent draws from the distributions of the parameters.",
            reads_history=False,
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES),
            settings=(RANDOM_STATE,),
        ),
        "suggestion_services.random_search.random_search:RandomSearch",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "grid",
            "Every combination once; a double needs a step.",
            reads_history=False,
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES),
            needs_steps=True,
            settings=(RANDOM_STATE,),
        ),
        "suggestion_services.grid.grid:GridSearch",
        rules="suggestion_services.grid.grid:GridSearch",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "tpe",
            "Tree-structured Parzen estimator, each parameter for itself.",
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.PRIORS),
        ),
        "suggestion_services.tpe.tpe:Tpe",
        rules="suggestion_services.base.rules:TpeRules",
        settings="TPE",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "multivariate-tpe",
            "Tree-structured Parzen estimator of all parameters together, for parameters that interact.",
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.PRIORS),
        ),
        "suggestion_services.tpe.tpe:MultivariateTpe",
        rules="suggestion_services.base.rules:TpeRules",
        settings="MULTIVARIATE_TPE",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "motpe",
            "Tree-structured Parzen estimator for several objectives, each parameter for itself.",
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES, Feature.PRIORS),
        ),
        "suggestion_services.tpe.tpe:Motpe",
        rules="suggestion_services.base.rules:TpeRules",
        settings="MULTIVARIATE_TPE",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "bayesianoptimization",
            "A regression model of the objective; suggests the most promising point under it.",
            features=(Feature.CONDITIONAL_PARAMETERS,),
        ),
        "suggestion_services.bayesian.bayesian:BayesianOptimization",
        rules="suggestion_services.base.rules:BayesianRules",
        package="skopt",
        settings="BAYESIANOPTIMIZATION",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "gp",
            "A Gaussian process for few, expensive trials in spaces of any kind.",
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.CONSTRAINTS, Feature.SEVERAL_OBJECTIVES, Feature.PRIORS),
        ),
        "suggestion_services.gp.gp:GaussianProcess",
        settings="GP",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "hyperband",
            "Many trials with little of a resource, such as epochs, and few with more, in several brackets.",
            features=(Feature.CONSTRAINTS, Feature.CONDITIONAL_PARAMETERS, Feature.PRIORS),
            echoed=_ECHOED,
        ),
        "suggestion_services.hyperband.hyperband:Hyperband",
        rules="suggestion_services.hyperband.hyperband:Hyperband",
        settings="HYPERBAND",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "bohb",
            "The brackets of Hyperband, with a model of the best trials instead of random sampling.",
            features=(Feature.CONSTRAINTS, Feature.CONDITIONAL_PARAMETERS, Feature.PRIORS),
            echoed=_ECHOED,
        ),
        "suggestion_services.bohb.bohb:Bohb",
        rules="suggestion_services.bohb.bohb:Bohb",
        settings="BOHB",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "asha",
            "Trials pause at a rung of a resource, such as epochs; the best of each rung continue.",
            features=(Feature.CONSTRAINTS, Feature.CONDITIONAL_PARAMETERS, Feature.PRIORS),
        ),
        "suggestion_services.asha.asha:Asha",
        rules="suggestion_services.asha.asha:Asha",
        settings="LADDER",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "cmaes",
            "Covariance matrix adaptation: a normal distribution that follows the better trials of each generation.",
            features=(Feature.CONDITIONAL_PARAMETERS,),
            numeric_parameters=2,
        ),
        "suggestion_services.cmaes.cmaes:CmaEs",
        settings="CMAES",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "sobol",
            "Points of a low-discrepancy sequence, which fills the space evenly.",
            reads_history=False,
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES),
            settings=(RANDOM_STATE,),
        ),
        "suggestion_services.sobol.sobol:SobolSearch",
        rules="suggestion_services.base.rules:SobolRules",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "pbt",
            "Population based training: trials continue from checkpoints, the worst from those of the best.",
            features=(Feature.CONDITIONAL_PARAMETERS,),
        ),
        "suggestion_services.pbt.pbt:PopulationBasedTraining",
        rules="suggestion_services.pbt.pbt:PopulationBasedTraining",
        settings="PBT",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "nsga2",
            "A genetic algorithm for several objectives, which keeps the Pareto-optimal trials.",
            features=(Feature.SEVERAL_OBJECTIVES, Feature.CONSTRAINTS, Feature.CONDITIONAL_PARAMETERS),
        ),
        "suggestion_services.nsga2.nsga2:Nsga2",
        settings="NSGA2",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "enas",
            "A small recurrent network that learns from the trials which architectures to try next.",
            graph_fields=("inputSizes", "outputSizes", "numLayers"),
            assigns=("architecture", "nn_config"),
        ),
        "suggestion_services.enas.enas:Enas",
        rules="suggestion_services.enas.enas:Enas",
        settings="ENAS",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "darts",
            "A search inside one trial: passes it the operations and the settings of its training.",
            reads_history=False,
            graph_fields=("numLayers",),
            assigns=("algorithm-settings", "search-space", "num-layers"),
            forwards_settings=True,
        ),
        "suggestion_services.darts.darts:Darts",
        settings="DARTS",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "auto",
            "Chooses another algorithm by the search space, and reports which one and why.",
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES, Feature.CONSTRAINTS, Feature.PRIORS),
        ),
        "suggestion_services.auto.auto:Auto",
        rules="suggestion_services.auto.auto:Auto",
        settings="AUTO",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "medianstop",
            "Stops a trial whose best reading so far is worse than the average of other trials' first readings.",
            early_stopping=True,
        ),
        "suggestion_services.medianstop.rule:MedianStopping",
        servicer_path="suggestion_services.medianstop.medianstop:MedianStop",
        settings="MEDIANSTOP",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "asha",
            "Asynchronous successive halving: the best share of the trials that reach a rung continues.",
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.asha:AshaStopping",
        settings="ASHA",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "hyperband",
            "Successive halving in brackets that begin at different rungs, so that slow starters have a chance.",
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.hyperband:HyperbandStopping",
        settings="STOPPING_HYPERBAND",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "median",
            "Stops a trial whose best reading so far is worse than the median of finished trials at the same step.",
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.median:Median",
        settings="MEDIAN",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "wilcoxon",
            "Stops a trial that is significantly worse than the best one over their common steps, such as folds.",
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.wilcoxon:Wilcoxon",
        settings="WILCOXON",
    ),
    ListedAlgorithm(
        AlgorithmInfo("patience", "Stops a trial whose best reading no longer improves.", early_stopping=True),
        "suggestion_services.early_stopping.patience:PatienceStopping",
        settings="PATIENCE",
    ),
    ListedAlgorithm(
        AlgorithmInfo(
            "threshold",
            "Stops a trial whose reading is worse than a bound, or is not a number several times in a row.",
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.threshold:Threshold",
        settings="THRESHOLD",
    ),
)


def find_entry(name: str, *, early_stopping: bool = False) -> ListedAlgorithm:
    """Return the entry of a suggestion algorithm, or of an early stopping algorithm.

    Raises:
        NotFoundError: No algorithm of this kind has the name; the message has the nearest one.
    """
    entries = {entry.listed.name: entry for entry in ENTRIES if entry.listed.early_stopping == early_stopping}
    if name in entries:
        return entries[name]
    names = list(entries)
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"did you mean {near[0]}" if near else f"use one of {', '.join(names)}"
    raise NotFoundError(f'unknown algorithm "{name}"; {remedy}')
