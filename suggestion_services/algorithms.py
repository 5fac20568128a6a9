"""The list of algorithms: what each is called, what it can be told, and where its class is.

Importing the list is cheap; a class and the libraries behind it are imported when it is first asked for something.
Settings are the union of what Katib's own services accept under a name, since users move between them. To add an
algorithm, write a class and add an entry here (`docs/algorithms.md`).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

from katib.api.algorithms import AlgorithmInfo, SettingSpec
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
    """One line of the list: what is known of an algorithm, the dotted path of its class, and the package it needs."""

    info: AlgorithmInfo
    path: str
    package: str = ""

    def load(self) -> Any:
        """Import and return the class: an `Algorithm`, or for early stopping a gRPC `EarlyStoppingServicer`."""
        module, _, name = self.path.partition(":")
        return getattr(importlib.import_module(module), name)

    def check_installed(self) -> None:
        """Raise TerminalError, with the command that helps, when a package of an optional extra is missing."""
        if self.package and importlib.util.find_spec(self.package) is None:
            name, extra = self.info.name, self.info.extra
            raise TerminalError(f"{name}: the package {self.package} is missing; run pip install 'katib[{extra}]'")


ENTRIES: tuple[Entry, ...] = (
    Entry(
        AlgorithmInfo(
            "random", "Independent draws from the distributions of the parameters.", (_SEED,), reads_history=False
        ),
        "suggestion_services.random_search.random_search:RandomSearch",
    ),
    Entry(
        AlgorithmInfo("grid", "Every combination once; a double needs a step.", (_SEED,), reads_history=False),
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
        ),
        "suggestion_services.tpe.tpe:Tpe",
    ),
    Entry(
        AlgorithmInfo(
            "multivariate-tpe",
            "Tree-structured Parzen estimator of all parameters together, for parameters that interact.",
            (_SEED, _STARTUP, _CANDIDATES),
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
        ),
        "suggestion_services.bayesian.bayesian:BayesianOptimization",
        package="skopt",
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
        "suggestion_services.medianstop.medianstop:MedianStop",
    ),
)


def find_entry(name: str) -> Entry:
    """Return the entry of an algorithm.

    Raises:
        NotFoundError: There is none, with the nearest name.
    """
    names = [entry.info.name for entry in ENTRIES]
    if name in names:
        return ENTRIES[names.index(name)]
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"did you mean {near[0]}" if near else f"use one of {', '.join(names)}"
    raise NotFoundError(f'unknown algorithm "{name}"; {remedy}')
