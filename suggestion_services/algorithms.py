"""The list of algorithms: the name of each, its settings, and where its class is.

Importing the list is cheap; a class and the libraries behind it are imported when it is first asked for something.
Settings are the union of what Katib's own services accept under a name, since users move between them. To add an
algorithm, write a class and add an entry here (`docs/reference/algorithms.md`).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import dataclass, replace
from typing import Any

from katib.api.algorithms import SEED, AlgorithmInfo, Feature, SettingSpec
from katib.errors import NotFoundError, TerminalError

_SEED = SettingSpec(
    "random_state",
    "int",
    "",
    "Seed; without it the name of the experiment is the seed.",
    at_least=0,
)
_STARTUP = SettingSpec("n_startup_trials", "int", "10", "Trials drawn at random before the model is used.", at_least=0)
# The upper bound keeps a slip of the keyboard from filling the memory.
_CANDIDATES = SettingSpec(
    "n_ei_candidates", "int", "24", "Points drawn per suggestion, of which the best is taken.", at_least=0, at_most=1e5
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list.

    Attributes:
        info: What is known of the algorithm.
        path: Dotted path of its class.
        package: The package it needs; empty when none.
        servicer_path: Of an early stopping algorithm that answers Katib's calls in a way of its own.
    """

    info: AlgorithmInfo
    path: str
    package: str = ""
    servicer_path: str = ""

    def load(self) -> Any:
        """Import and return the class: an `Algorithm`, or for early stopping a `StoppingAlgorithm`."""
        return _imported(self.path)

    def servicer(self) -> Any:
        """Return the gRPC `StoppingServicer` of an early stopping algorithm."""
        if self.servicer_path:
            return _imported(self.servicer_path)()
        return _imported(_STOPPING_SERVICER)(self.info, self.load)

    @property
    def is_installed(self) -> bool:
        """Whether the package of an optional extra, if it needs one, is there."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def check_installed(self) -> None:
        """Raise TerminalError, with the command that helps, when a package of an optional extra is missing."""
        if not self.is_installed:
            name, extra = self.info.name, self.info.extra
            raise TerminalError(f"{name}: the package {self.package} is missing; run pip install 'katib[{extra}]'")


_STOPPING_SERVICER = "suggestion_services.early_stopping.servicer:StoppingServicer"


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


_ETA = SettingSpec("reduction_factor", "int", "3", "One of so many trials goes on beyond a rung.", at_least=2)
_FIRST = SettingSpec("min_resource", "int", "1", "The first rung: a step, or a number of readings.", at_least=1)
_GRACE = SettingSpec("grace", "int", "0", "No trial is stopped before this step or number of readings.", at_least=0)


_HALVING = (
    _SEED,
    SettingSpec(
        "r_l",
        "float",
        "",
        "The largest resource: what the last trials of each bracket get.",
        above=0,
        is_required=True,
    ),
    SettingSpec(
        "resource_name",
        "text",
        "",
        "The parameter that receives the resource, such as epochs.",
        is_required=True,
        names_parameter=True,
    ),
    SettingSpec("eta", "float", "3", "One of so many trials goes on, with so many times the resource.", above=1),
    SettingSpec(
        "s_max",
        "int",
        "",
        "Number of brackets less one; without it as many as there is room for between the least resource and r_l.",
        at_least=0,
    ),
    SettingSpec("rounds", "int", "1", "How often all brackets are run; 0: until something else ends it.", at_least=0),
)
_ECHOED = ("b_l", "n", "r", "current_s", "current_i", "evaluating_trials")

_LISTED: tuple[Entry, ...] = (
    Entry(
        AlgorithmInfo(
            "random",
            "Independent draws from the distributions of the parameters.",
            (_SEED,),
            reads_history=False,
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES),
        ),
        "suggestion_services.random_search.random_search:RandomSearch",
    ),
    Entry(
        AlgorithmInfo(
            "grid",
            "Every combination once; a double needs a step.",
            (_SEED,),
            reads_history=False,
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES),
        ),
        "suggestion_services.grid.grid:GridSearch",
    ),
    Entry(
        AlgorithmInfo(
            "tpe",
            "Tree-structured Parzen estimator, each parameter for itself.",
            (
                _SEED,
                _STARTUP,
                _CANDIDATES,
                SettingSpec("n_EI_candidates", "int", "24", "Another name of n_ei_candidates.", above=0, at_most=1e5),
                SettingSpec(
                    "gamma", "float", "", "Good trials are the best gamma * sqrt(n) of n, at most 25.", above=0, below=1
                ),
                SettingSpec("prior_weight", "float", "1.0", "Weight of the prior in the estimator.", above=0),
            ),
            features=(Feature.CONDITIONAL_PARAMETERS,),
        ),
        "suggestion_services.tpe.tpe:Tpe",
    ),
    Entry(
        AlgorithmInfo(
            "multivariate-tpe",
            "Tree-structured Parzen estimator of all parameters together, for parameters that interact.",
            (_SEED, _STARTUP, _CANDIDATES),
            features=(Feature.CONDITIONAL_PARAMETERS,),
        ),
        "suggestion_services.tpe.tpe:MultivariateTpe",
    ),
    Entry(
        AlgorithmInfo(
            "bayesianoptimization",
            "A regression model of the objective, and the point that promises most under it.",
            (
                _SEED,
                SettingSpec(
                    "base_estimator",
                    "text",
                    "GP",
                    "The model: Gaussian process, random forest, extra trees or gradient boosted trees.",
                    choices=("GP", "RF", "ET", "GBRT"),
                ),
                SettingSpec(
                    "n_initial_points", "int", "10", "Trials drawn at random before the model is used.", at_least=0
                ),
                SettingSpec(
                    "acq_func",
                    "text",
                    "gp_hedge",
                    "What a point promises; EIps and PIps weigh it against the duration of trials.",
                    choices=("gp_hedge", "LCB", "EI", "PI", "EIps", "PIps"),
                ),
                SettingSpec(
                    "acq_optimizer",
                    "text",
                    "auto",
                    "How the most promising point is found; lbfgs needs base_estimator GP.",
                    choices=("auto", "sampling", "lbfgs"),
                ),
            ),
            extra="bayesian",
            features=(Feature.CONDITIONAL_PARAMETERS,),
        ),
        "suggestion_services.bayesian.bayesian:BayesianOptimization",
        package="skopt",
    ),
    Entry(
        AlgorithmInfo(
            "gp",
            "A Gaussian process of our own, for few and expensive trials in spaces of any kind.",
            (
                _SEED,
                SettingSpec(
                    "n_startup_trials", "int", "5", "Trials that fill the space before the model is used.", at_least=0
                ),
            ),
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.CONSTRAINTS),
        ),
        "suggestion_services.gp.gp:GaussianProcess",
    ),
    Entry(
        AlgorithmInfo(
            "hyperband",
            "Many trials with little of a resource, such as epochs, and few with more, in several brackets.",
            _HALVING,
            features=(Feature.CONSTRAINTS, Feature.CONDITIONAL_PARAMETERS),
            echoed=_ECHOED,
        ),
        "suggestion_services.hyperband.hyperband:Hyperband",
    ),
    Entry(
        AlgorithmInfo(
            "bohb",
            "The brackets of Hyperband, with a model of the best trials in place of chance.",
            (
                *(replace(s, default="0") if s.name == "rounds" else s for s in _HALVING),
                SettingSpec(
                    "model",
                    "text",
                    "kde",
                    "What suggests new configurations: the densities of the paper, multivariate-tpe, or gp.",
                    choices=("kde", "tpe", "gp"),
                ),
                SettingSpec(
                    "n_startup_trials",
                    "int",
                    "",
                    "Trials with values that a resource must have had before the model learns from it; "
                    "without it two more than there are parameters.",
                    at_least=1,
                ),
                SettingSpec(
                    "random_fraction",
                    "float",
                    "0.3333",
                    "Share of new configurations that is drawn at random all the same.",
                    at_least=0,
                    at_most=1,
                ),
            ),
            features=(Feature.CONSTRAINTS, Feature.CONDITIONAL_PARAMETERS),
            echoed=_ECHOED,
        ),
        "suggestion_services.bohb.bohb:Bohb",
    ),
    Entry(
        AlgorithmInfo(
            "cmaes",
            "Covariance matrix adaptation: a normal distribution that follows the better trials of each generation.",
            (
                _SEED,
                SettingSpec(
                    "sigma",
                    "float",
                    "",
                    "Deviation at the start as a share of each range; a sixth by default, also for 0.",
                    at_least=0,
                ),
                SettingSpec(
                    "restart_strategy",
                    "text",
                    "none",
                    "What follows when a search has converged: nothing, a search with a larger population, or with "
                    "larger and smaller ones in turn.",
                    choices=("none", "None", "ipop", "bipop"),
                ),
            ),
            features=(Feature.CONDITIONAL_PARAMETERS,),
            numeric_parameters=2,
        ),
        "suggestion_services.cmaes.cmaes:CmaEs",
    ),
    Entry(
        AlgorithmInfo(
            "sobol",
            "Points of a sequence that fills the space evenly.",
            (_SEED,),
            reads_history=False,
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES),
        ),
        "suggestion_services.sobol.sobol:SobolSearch",
    ),
    Entry(
        AlgorithmInfo(
            "pbt",
            "Population based training: trials go on from each other's checkpoints, the worst from those of the best.",
            (
                _SEED,
                SettingSpec(
                    "suggestion_trial_dir",
                    "place",
                    "",
                    "Path at which each trial finds its checkpoint, or the URL of a store where trials keep them.",
                    is_required=True,
                ),
                SettingSpec("n_population", "int", "10", "Members that train side by side.", at_least=5, at_most=1e4),
                SettingSpec(
                    "truncation_threshold",
                    "float",
                    "0.2",
                    "Share of the members, the worst, that copy one of as many, the best.",
                    at_least=0,
                    at_most=1,
                ),
                SettingSpec(
                    "resample_probability",
                    "float",
                    "0",
                    "Probability that a copied value is drawn again, instead of multiplied by 0.8 or 1.2.",
                    at_least=0,
                    at_most=1,
                ),
            ),
            features=(Feature.CONDITIONAL_PARAMETERS,),
        ),
        "suggestion_services.pbt.pbt:PopulationBasedTraining",
    ),
    Entry(
        AlgorithmInfo(
            "nsga2",
            "A genetic algorithm for several objectives, which keeps the trials that no other beats in all of them.",
            (
                _SEED,
                SettingSpec(
                    "population_size",
                    "int",
                    "",
                    "Trials of a generation; by default the square root of maxTrialCount, between 10 and 50.",
                    at_least=2,
                    at_most=1e4,
                ),
                SettingSpec(
                    "mutation_prob",
                    "float",
                    "",
                    "Probability that a parameter is drawn again; by default 1 over the number of parameters.",
                    at_least=0,
                    at_most=1,
                ),
                SettingSpec(
                    "crossover_prob",
                    "float",
                    "0.9",
                    "Probability that a trial has two parents instead of one.",
                    at_least=0,
                    at_most=1,
                ),
                SettingSpec(
                    "swapping_prob",
                    "float",
                    "0.5",
                    "Probability that a parameter comes from the second parent.",
                    at_least=0,
                    at_most=1,
                ),
            ),
            features=(Feature.SEVERAL_OBJECTIVES, Feature.CONSTRAINTS, Feature.CONDITIONAL_PARAMETERS),
        ),
        "suggestion_services.nsga2.nsga2:Nsga2",
    ),
    Entry(
        AlgorithmInfo(
            "enas",
            "A small recurrent network that learns from the trials which architectures to try next.",
            (
                _SEED,
                SettingSpec(
                    "controller_hidden_size", "int", "64", "Units of the recurrent network.", at_least=1, at_most=512
                ),
                SettingSpec(
                    "controller_temperature",
                    "float",
                    "5.0",
                    "What scores are divided by: higher explores more; `None` does not divide.",
                    above=0,
                    may_be_none=True,
                ),
                SettingSpec(
                    "controller_tanh_const",
                    "float",
                    "2.25",
                    "Bound of scores, so that no choice becomes certain; `None` sets no bound.",
                    above=0,
                    may_be_none=True,
                ),
                SettingSpec(
                    "controller_entropy_weight",
                    "float",
                    "1e-5",
                    "Weight of the entropy of choices in what is maximized; `None` leaves it out.",
                    above=0,
                    may_be_none=True,
                ),
                SettingSpec(
                    "controller_baseline_decay",
                    "float",
                    "0.999",
                    "How slowly the mean forgets that rewards are compared with.",
                    above=0,
                    at_most=1,
                ),
                SettingSpec(
                    "controller_learning_rate", "float", "5e-5", "Of Adam, for the controller.", above=0, at_most=1
                ),
                SettingSpec(
                    "controller_skip_target",
                    "float",
                    "0.4",
                    "Share of earlier layers that a layer should be linked to.",
                    above=0,
                    at_most=1,
                ),
                SettingSpec(
                    "controller_skip_weight",
                    "float",
                    "0.8",
                    "Weight of the distance from that share in what is minimized; `None` leaves it out.",
                    above=0,
                    may_be_none=True,
                ),
                SettingSpec(
                    "controller_train_steps",
                    "int",
                    "50",
                    "Steps of Adam for each trial that has ended.",
                    at_least=1,
                    at_most=1e5,
                ),
                SettingSpec("controller_log_every_steps", "int", "10", "Accepted, without effect.", at_least=1),
            ),
            graph_fields=("inputSizes", "outputSizes", "numLayers"),
            assigns=("architecture", "nn_config"),
        ),
        "suggestion_services.enas.enas:Enas",
    ),
    Entry(
        AlgorithmInfo(
            "darts",
            "A search that happens inside a trial: hands it the operations and the settings of its training.",
            (
                SettingSpec("num_epochs", "int", "50", "Epochs of the search.", above=0),
                SettingSpec("w_lr", "float", "0.025", "Learning rate of the network's weights.", at_least=0),
                SettingSpec("w_lr_min", "float", "0.001", "The same at the end.", at_least=0),
                SettingSpec("w_momentum", "float", "0.9", "Momentum of the network's weights.", at_least=0),
                SettingSpec("w_weight_decay", "float", "3e-4", "Decay of the network's weights.", at_least=0),
                SettingSpec("w_grad_clip", "float", "5.0", "Longest gradient of the network's weights.", at_least=0),
                SettingSpec("alpha_lr", "float", "3e-4", "Learning rate of the architecture.", at_least=0),
                SettingSpec("alpha_weight_decay", "float", "1e-3", "Decay of the architecture's weights.", at_least=0),
                SettingSpec(
                    "batch_size", "int", "128", "Examples of a step; `None` means null.", at_least=1, may_be_none=True
                ),
                SettingSpec("num_workers", "int", "4", "Processes that load examples.", at_least=0),
                SettingSpec("init_channels", "int", "16", "Channels of the first layer.", at_least=1),
                SettingSpec("print_step", "int", "50", "Steps between two lines of output.", at_least=1),
                SettingSpec("num_nodes", "int", "4", "Nodes of a cell.", at_least=1),
                SettingSpec("stem_multiplier", "int", "3", "Channels of the stem, times init_channels.", at_least=1),
            ),
            reads_history=False,
            graph_fields=("numLayers",),
            assigns=("algorithm-settings", "search-space", "num-layers"),
            forwards_settings=True,
        ),
        "suggestion_services.darts.darts:Darts",
    ),
    Entry(
        AlgorithmInfo(
            "auto",
            "Chooses one of the others by what is searched, and says which one and why.",
            (_SEED,),
            features=(Feature.CONDITIONAL_PARAMETERS, Feature.SEVERAL_OBJECTIVES, Feature.CONSTRAINTS),
        ),
        "suggestion_services.auto.auto:Auto",
    ),
    Entry(
        AlgorithmInfo(
            "medianstop",
            "Stops a trial whose best reading so far is worse than the usual one at the same step.",
            (
                SettingSpec("min_trials_required", "int", "3", "Trials that must succeed first.", above=0),
                SettingSpec("start_step", "int", "4", "Readings that are averaged and compared.", at_least=1),
            ),
            early_stopping=True,
        ),
        "suggestion_services.medianstop.running:MedianStopping",
        servicer_path="suggestion_services.medianstop.medianstop:MedianStop",
    ),
    Entry(
        AlgorithmInfo(
            "asha",
            "Asynchronous successive halving: of the trials that reach a rung, the best share goes on.",
            (
                _ETA,
                _FIRST,
                _GRACE,
                SettingSpec(
                    "max_resource",
                    "int",
                    "",
                    "Where trials end by themselves: no rung from here on.",
                    above=1,
                    above_setting="min_resource",
                ),
            ),
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.asha:Asha",
    ),
    Entry(
        AlgorithmInfo(
            "hyperband",
            "Successive halving in brackets that begin at different rungs, so that slow starters have a chance.",
            (
                _ETA,
                _FIRST,
                _GRACE,
                SettingSpec(
                    "max_resource",
                    "int",
                    "",
                    "Where trials end by themselves; without it that of the longest trial that has succeeded.",
                    above=1,
                    above_setting="min_resource",
                ),
            ),
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.hyperband:Hyperband",
    ),
    Entry(
        AlgorithmInfo(
            "wilcoxon",
            "Stops a trial that is significantly worse than the best one over the steps that both have, such as folds.",
            (
                SettingSpec(
                    "p_threshold",
                    "float",
                    "0.1",
                    "How improbable a difference by chance must be; lower stops less.",
                    above=0,
                    at_most=1,
                ),
                SettingSpec("n_startup_steps", "int", "2", "Steps that both trials must have.", at_least=0),
            ),
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.wilcoxon:Wilcoxon",
    ),
    Entry(
        AlgorithmInfo(
            "patience",
            "Stops a trial whose best reading no longer improves.",
            (
                SettingSpec("patience", "int", "10", "Readings without improvement.", at_least=1),
                SettingSpec("min_delta", "float", "0", "Improvement that is not enough.", at_least=0),
                _GRACE,
            ),
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.patience:Patience",
    ),
    Entry(
        AlgorithmInfo(
            "threshold",
            "Stops a trial whose reading is worse than a bound, or is not a number several times in a row.",
            (
                SettingSpec("bound", "float", "", "What a reading must not be worse than; without it only NaN stops."),
                SettingSpec("step", "int", "1", "The bound holds from this step or number of readings on.", at_least=1),
                SettingSpec("max_nan", "int", "3", "So many readings in a row that are no number stop.", at_least=1),
            ),
            early_stopping=True,
        ),
        "suggestion_services.early_stopping.threshold:Threshold",
    ),
)


def _with_common(entry: Entry) -> Entry:
    """Return the entry with what every suggestion algorithm has: a `seed`, and earlier trials where it learns."""
    info = entry.info
    if info.early_stopping:
        return entry
    learns = (Feature.EARLIER_TRIALS,) if info.reads_history and not info.graph_fields else ()
    common = replace(info, settings=(*(info.settings or ()), SEED), features=(*info.features, *learns))
    return replace(entry, info=common)


ENTRIES = tuple(map(_with_common, _LISTED))


def find_entry(name: str, *, early_stopping: bool = False) -> Entry:
    """Return the entry of a suggestion algorithm, or of an early stopping algorithm.

    Args:
        name: Of the algorithm.
        early_stopping: Of which of the two kinds it is; None: a suggestion algorithm if there is one of this name.

    Raises:
        NotFoundError: There is none of this kind, with the nearest name.
    """
    entries = {entry.info.name: entry for entry in ENTRIES if entry.info.early_stopping == early_stopping}
    if name in entries:
        return entries[name]
    names = list(entries)
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"did you mean {near[0]}" if near else f"use one of {', '.join(names)}"
    raise NotFoundError(f'unknown algorithm "{name}"; {remedy}')
