"""The settings of each algorithm in the list, by its name.

They are a superset of those that Katib's own services accept under the same name, so that experiments move freely.
"""

from __future__ import annotations

from msgspec.structs import replace

from katib.model.algorithms import RANDOM_STATE, SettingSpec


def _share(name: str, default: str, description: str) -> SettingSpec:
    return SettingSpec(name, "float", default, description, at_least=0, at_most=1)


def _positive_share(name: str, default: str, description: str) -> SettingSpec:
    return SettingSpec(name, "float", default, description, above=0, at_most=1)


def _positive_or_none(name: str, default: str, description: str) -> SettingSpec:
    return SettingSpec(name, "float", default, description, above=0, may_be_none=True)


def _last_resource(description: str) -> SettingSpec:
    return SettingSpec("max_resource", "int", "", description, above=1, above_setting="min_resource")


_STARTUP = SettingSpec("n_startup_trials", "int", "10", "Trials drawn at random before the model is used.", at_least=0)
# The upper bound keeps a typing error from filling the memory.
_CANDIDATES = SettingSpec(
    "n_ei_candidates", "int", "24", "Points drawn per suggestion; the best is used.", at_least=0, at_most=1e5
)
_ETA = SettingSpec("reduction_factor", "int", "3", "One of this many trials continues beyond a rung.", at_least=2)
_FIRST = SettingSpec("min_resource", "int", "1", "The first rung: a step, or a number of readings.", at_least=1)
_GRACE = SettingSpec("grace", "int", "0", "No trial is stopped before this step or number of readings.", at_least=0)

_COST_AWARE = SettingSpec(
    "cost_aware", "bool", "false", "Weigh the expected improvement of a trial against its expected duration."
)

_KEEP = SettingSpec(
    "keep_checkpoints",
    "text",
    "needed",
    "Which checkpoints are kept while the experiment exists: those of the best trial and of trials that others may "
    "start from, or all.",
    choices=("needed", "all"),
)

HYPERBAND = (
    RANDOM_STATE,
    SettingSpec(
        "r_l",
        "float",
        "",
        "The largest resource, given to the last trials of each bracket.",
        above=0,
        is_required=True,
        amount_of="resource_name",
    ),
    SettingSpec(
        "resource_name",
        "text",
        "",
        "The parameter that receives the resource, such as epochs.",
        is_required=True,
        names_parameter=True,
    ),
    SettingSpec("eta", "float", "3", "One of this many trials continues, with this many times the resource.", above=1),
    SettingSpec(
        "s_max",
        "int",
        "",
        "Number of brackets less one; by default as many as fit between the least resource and r_l.",
        at_least=0,
    ),
    SettingSpec("rounds", "int", "1", "How often all brackets are run; 0: until the experiment ends.", at_least=0),
    SettingSpec(
        "suggestion_trial_dir",
        "place",
        "",
        "Path at which each trial finds the checkpoint of the trial that it continues, or the URL of a store for "
        "checkpoints; without it, trials start from scratch.",
    ),
    _KEEP,
)

TPE = (
    RANDOM_STATE,
    _STARTUP,
    _CANDIDATES,
    SettingSpec("n_EI_candidates", "int", "24", "Another name of n_ei_candidates.", above=0, at_most=1e5),
    SettingSpec("gamma", "float", "", "Good trials are the best gamma * sqrt(n) of n, at most 25.", above=0, below=1),
    SettingSpec("prior_weight", "float", "1.0", "Weight of the prior in the estimator.", above=0),
)

MULTIVARIATE_TPE = (RANDOM_STATE, _STARTUP, _CANDIDATES)

BAYESIANOPTIMIZATION = (
    RANDOM_STATE,
    SettingSpec(
        "base_estimator",
        "text",
        "GP",
        "The model: Gaussian process, random forest, extra trees or gradient boosted trees.",
        choices=("GP", "RF", "ET", "GBRT"),
    ),
    SettingSpec("n_initial_points", "int", "10", "Trials drawn at random before the model is used.", at_least=0),
    SettingSpec(
        "acq_func",
        "text",
        "gp_hedge",
        "The acquisition function; EIps and PIps weigh it against the duration of trials.",
        choices=("gp_hedge", "LCB", "EI", "PI", "EIps", "PIps"),
    ),
    SettingSpec(
        "acq_optimizer",
        "text",
        "auto",
        "How the acquisition function is maximized; lbfgs needs base_estimator GP.",
        choices=("auto", "sampling", "lbfgs"),
    ),
)

GP = (
    RANDOM_STATE,
    SettingSpec("n_startup_trials", "int", "5", "Trials that fill the space before the model is used.", at_least=0),
    _COST_AWARE,
)

BOHB = (
    *(replace(s, default="0") if s.name == "rounds" else s for s in HYPERBAND),
    SettingSpec(
        "model",
        "text",
        "kde",
        "The source of new configurations: the densities of the paper, multivariate-tpe, or gp.",
        choices=("kde", "tpe", "gp"),
    ),
    SettingSpec(
        "n_startup_trials",
        "int",
        "",
        "Trials with values that a resource needs before the model learns from it; "
        "by default two more than there are parameters.",
        at_least=1,
    ),
    _share("random_fraction", "0.3333", "Share of new configurations that is drawn at random."),
)

_LADDER_ETA = "Factor of the resource from rung to rung; also decides how many trials continue."
LADDER = tuple(replace(s, description=_LADDER_ETA) if s.name == "eta" else s for s in HYPERBAND if s.name != "rounds")

AUTO = (
    *(replace(s, is_required=False) for s in LADDER),
    replace(_COST_AWARE, description="While it uses gp: " + _COST_AWARE.description.lower()),
)

CMAES = (
    RANDOM_STATE,
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
        "ipop",
        "Restart strategy after convergence: none (as in Katib's services unless a restart is requested), a "
        "larger population, or larger and smaller ones in turn.",
        choices=("none", "None", "ipop", "bipop"),
    ),
)

PBT = (
    RANDOM_STATE,
    SettingSpec(
        "suggestion_trial_dir",
        "place",
        "",
        "Path at which each trial finds its checkpoint, or the URL of a store for checkpoints.",
        is_required=True,
    ),
    SettingSpec("n_population", "int", "10", "Members that train side by side.", at_least=5, at_most=1e4),
    _share("truncation_threshold", "0.2", "Share of the members, the worst, that copy members of the best share."),
    _share(
        "resample_probability",
        "0",
        "Probability that a copied value is drawn again, instead of multiplied by 0.8 or 1.2.",
    ),
    _KEEP,
)

NSGA2 = (
    RANDOM_STATE,
    SettingSpec(
        "population_size",
        "int",
        "",
        "Trials of a generation; by default the square root of maxTrialCount, between 10 and 50.",
        at_least=2,
        at_most=1e4,
    ),
    _share(
        "mutation_prob", "", "Probability that a parameter is drawn again; by default 1 over the number of parameters."
    ),
    _share("crossover_prob", "0.9", "Probability that a trial has two parents instead of one."),
    _share("swapping_prob", "0.5", "Probability that a parameter comes from the second parent."),
)

ENAS = (
    RANDOM_STATE,
    SettingSpec("controller_hidden_size", "int", "64", "Units of the recurrent network.", at_least=1, at_most=512),
    _positive_or_none(
        "controller_temperature", "5.0", "Divisor of scores: higher explores more; `None` does not divide."
    ),
    _positive_or_none(
        "controller_tanh_const", "2.25", "Bound of scores, so that no choice becomes certain; `None` sets no bound."
    ),
    _positive_or_none(
        "controller_entropy_weight",
        "0.1",
        "Weight of the entropy of choices in what is maximized, in standard deviations of the reward; with little, "
        "noise decides. `None` leaves it out.",
    ),
    _positive_share(
        "controller_baseline_decay", "0.999", "How slowly the mean forgets that rewards are compared with."
    ),
    _positive_share(
        "controller_learning_rate",
        "",
        "Of Adam, for the controller; by default as the budget of trials needs it, such as 0.001 for 120 trials.",
    ),
    _positive_share("controller_skip_target", "0.4", "Share of earlier layers that a layer should be linked to."),
    _positive_or_none(
        "controller_skip_weight",
        "0.8",
        "Weight of the distance from that share in what is minimized; `None` leaves it out.",
    ),
    SettingSpec(
        "controller_train_steps", "int", "50", "Steps of Adam for each trial that has ended.", at_least=1, at_most=1e5
    ),
    SettingSpec("controller_log_every_steps", "int", "10", "Accepted, without effect.", at_least=1),
)

DARTS = (
    SettingSpec("num_epochs", "int", "50", "Epochs of the search.", above=0),
    SettingSpec("w_lr", "float", "0.025", "Learning rate of the network's weights.", at_least=0),
    SettingSpec("w_lr_min", "float", "0.001", "The same at the end.", at_least=0),
    SettingSpec("w_momentum", "float", "0.9", "Momentum of the network's weights.", at_least=0),
    SettingSpec("w_weight_decay", "float", "3e-4", "Decay of the network's weights.", at_least=0),
    SettingSpec("w_grad_clip", "float", "5.0", "Longest gradient of the network's weights.", at_least=0),
    SettingSpec("alpha_lr", "float", "3e-4", "Learning rate of the architecture.", at_least=0),
    SettingSpec("alpha_weight_decay", "float", "1e-3", "Decay of the architecture's weights.", at_least=0),
    SettingSpec("batch_size", "int", "128", "Examples of a step; `None` means null.", at_least=1, may_be_none=True),
    SettingSpec("num_workers", "int", "4", "Processes that load examples.", at_least=0),
    SettingSpec("init_channels", "int", "16", "Channels of the first layer.", at_least=1),
    SettingSpec("print_step", "int", "50", "Steps between two lines of output.", at_least=1),
    SettingSpec("num_nodes", "int", "4", "Nodes of a cell.", at_least=1),
    SettingSpec("stem_multiplier", "int", "3", "Channels of the stem, times init_channels.", at_least=1),
)

MEDIANSTOP = (
    SettingSpec("min_trials_required", "int", "3", "Trials that must succeed first.", above=0),
    SettingSpec("start_step", "int", "4", "Readings that are averaged and compared.", at_least=1),
)

ASHA = (
    _ETA,
    _FIRST,
    _GRACE,
    _last_resource("The resource at which trials end by themselves: no rung from here on."),
)

STOPPING_HYPERBAND = (
    _ETA,
    _FIRST,
    _GRACE,
    _last_resource("The resource at which trials end by themselves; by default that of the longest succeeded trial."),
)

MEDIAN = (
    SettingSpec("n_startup_trials", "int", "5", "Trials that must have succeeded before any is stopped.", at_least=0),
    SettingSpec("n_min_trials", "int", "1", "Of them, trials that must have reached the step.", at_least=1),
    SettingSpec("percentile", "float", "50", "Of their values, best first; lower stops more.", above=0, at_most=100),
    _GRACE,
)

WILCOXON = (
    _positive_share("p_threshold", "0.1", "Significance level of the difference; lower stops less."),
    SettingSpec("n_startup_steps", "int", "2", "Steps that both trials must have in common.", at_least=0),
)

PATIENCE = (
    SettingSpec("patience", "int", "10", "Readings without improvement.", at_least=1),
    SettingSpec("min_delta", "float", "0", "An improvement counts if it is larger than this.", at_least=0),
    _GRACE,
)

THRESHOLD = (
    SettingSpec("bound", "float", "", "The worst allowed reading; without it only NaN stops."),
    SettingSpec("step", "int", "1", "The bound holds from this step or number of readings on.", at_least=1),
    SettingSpec("max_nan", "int", "3", "Number of non-finite readings in a row that stop a trial.", at_least=1),
)
