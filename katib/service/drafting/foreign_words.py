"""Names from Optuna, Ray Tune and other libraries, with their equivalents here.

Read only after a name was not found, so it costs correct programs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from katib.errors import CallError, InternalError, KatibError, user_traceback

P = ParamSpec("P")
R = TypeVar("R")

_BEST = {
    "{}.best": "best_trial best_result get_best_result get_best_trial best_run best_checkpoint",
    "{}.best.parameters": "best_params best_config get_best_config best_parameters params config",
    "{}.best.value": "best_value best_score best_metric value",
    "{}.pareto": "best_trials pareto_front",
    "{}.dataframe()": "trials_dataframe get_dataframe to_dataframe to_pandas results_df as_dataframe df",
    "{}.trials": "get_trials results get_all_trials history trial_list",
    "{}.objectives": "direction directions metric mode",
    "{}.name": "study_name experiment_name",
    "{}.plots": "plot_optimization_history visualization figure figures",
    "{}.reason": "status state error errors",
}

_ARGUMENTS = {
    "max_trials": "n_trials trials num_trials num_samples n_samples n_iter n_calls max_evals count "
    "maxTrialCount max_trial_count budget",
    "parallel": "n_jobs jobs workers n_workers num_workers max_concurrent max_concurrent_trials max_parallel "
    "parallelTrialCount parallel_trial_count parallel_trials",
    "parameters": "space search_space param_space config params param_distributions hyperparameters",
    "function": "objective_function func fn trainable",
    "objective": "metric metric_name objective_metric_name objectiveMetricName monitor",
    "direction": "mode objective_type optimization_direction",
    'objectives={"loss": "minimize", "accuracy": "maximize"}': "directions metrics",
    "name, which resumes an existing experiment": "study_name load_if_exists resume experiment_name",
    "data_dir": "storage storage_path local_dir directory project_dir",
    "algorithm, such as tpe": "sampler search_alg tuner method suggest algo searcher algorithm_name",
    "settings, such as {'random_state': 1}": "seed random_state random_seed rstate algorithm_settings",
    "early_stopping, such as medianstop": "pruner scheduler",
    "initial_trials": "points_to_evaluate enqueue x0 initial_points evaluated_params",
    "max_failed": "catch max_failures raise_errors max_failed_trial_count maxFailedTrialCount",
    "goal": "target stop threshold",
    "verbose": "show_progress_bar progress quiet progress_bar",
    "additional_metrics": "additional_metric_names extra_metrics",
    "katib.report in the function, and result.trials at the end": "callbacks callback",
    "`katib tune --timeout SECONDS` for a program's trials, `--budget 8h` for all": (
        "timeout timeout_seconds time_budget_s time_budget max_time time_limit"
    ),
}

_SPACES = {
    "double(min, max)": "uniform float suggest_float suggest_uniform real Real Float FloatDistribution number",
    "double(min, max, log=True)": "loguniform log_uniform suggest_loguniform log_uniform_values",
    "double(min, max, step=...)": "quniform q_uniform suggest_discrete_uniform qloguniform",
    "int(min, max)": "randint integer Integer Int suggest_int IntDistribution int_uniform",
    "int(min, max, log=True)": "lograndint",
    "int(min, max, step=...)": "qrandint qlograndint",
    "double(min, max).when(name, *values), or compute it in the function": "sample_from conditional",
    "categorical([...])": "choice Choice suggest_categorical Categorical CategoricalDistribution grid_search select",
}

_BOUNDS = {"min": "low lower minimum a", "max": "high upper maximum b", "step": "q", "log=True": "base"}
_VALUES = {"choices": "values categories options sequence list"}


def _declared(value: str) -> dict[str, str]:
    """Return the replacements of `trial.suggest_float`, given the expression for the value in a trial."""
    suggested = {kind: [w for w in words.split() if w.startswith("suggest_")] for kind, words in _SPACES.items()}
    return {
        f"katib.search.{kind} in the search space, and {value} here": " ".join(words)
        for kind, words in suggested.items()
        if words
    }


_WORDS: Mapping[str, Mapping[str, str]] = {
    "katib": {
        "katib.tune(function, parameters)": "optimize minimize maximize fmin run Tuner TuneConfig sweep agent",
        "katib.tune(function, parameters), or katib.create(name, parameters) to ask and tell": (
            "create_study create_experiment Study study client Client KatibClient"
        ),
        "katib.open(name)": "load_study get_study load open_study load_experiment get_experiment ExperimentAnalysis",
        "katib.StopTrial": "TrialPruned",
        "katib.report": "log report_metrics",
        "katib.plots": "visualization plot",
        "katib.tune(..., algorithm=...); `katib algorithms` lists them": "samplers sampler search_alg algorithms",
        "katib.tune(..., early_stopping=...)": "pruners pruner schedulers scheduler",
        "`import katib.integrations.optuna`, then katib.integrations.optuna.storage()": "optuna_storage optuna storage",
        "`import katib.integrations.optuna`": "integrations integration",
        "`import katib.sklearn`": "sklearn KatibSearchCV GridSearchCV OptunaSearchCV",
        **{f"katib.search.{kind}": words for kind, words in _SPACES.items()},
    },
    "katib.search": {f"katib.search.{kind}": words for kind, words in _SPACES.items()},
    "tune()": _ARGUMENTS,
    "create()": _ARGUMENTS,
    "double()": _BOUNDS,
    "int()": _BOUNDS,
    "categorical()": _VALUES,
    "discrete()": _VALUES,
    "TuneResult": {place.format("result"): words for place, words in _BEST.items()},
    "Experiment": {
        "`for trial in experiment.ask_until_done():` and trial.tell(value)": "optimize run",
        "katib.create(..., initial_trials=[...]), or `katib trial add`": "enqueue_trial add_trial add_trials",
        "trial.tell(value)": "tell",
        "trial.report(loss=0.3, step=4)": "report",
        "`katib stop NAME`": "stop",
        **{place.format("experiment.result()"): words for place, words in _BEST.items()},
    },
    "TrialResult": {
        "trial.parameters": "params config parameter_assignments",
        "trial.name": "number trial_id id _trial_id",
        "trial.metrics": "user_attrs system_attrs metrics_history last_result",
        "`katib metrics TRIAL`": "intermediate_values readings",
        "`katib logs TRIAL`": "log logs output",
    },
    "AskedTrial": {
        "trial.parameters": "params config",
        "trial.name": "number trial_id id",
        "trial.should_stop; trial.report raises katib.StopTrial by itself": "should_prune",
        "trial.report(name=value)": "set_user_attr set_system_attr log",
        **_declared('trial.parameters["x"]'),
    },
    "dict": {
        "katib.report(accuracy=0.9, step=4)": "report log set_user_attr",
        "early_stopping, which ends the process of a trial from outside": "should_prune",
        "$KATIB_TRIAL_NAME": "number name trial_id",
        'trial["x"]': "params parameters config",
        **_declared('trial["x"]'),
    },
}


def same_here(owner: str, name: str) -> str:
    """Return the equivalent of another library's name; empty if the table does not have it."""
    return next((ours for ours, words in _WORDS.get(owner, {}).items() if name in words.split()), "")


def _remedy(owner: str, name: str, names: Iterable[str]) -> str:
    """Return the remedy for a name: its equivalent in the table, else a similar name, else all names."""
    from katib.model.wording import closest, one_of

    if ours := same_here(owner, name):
        return f"use {ours}"
    names = list(names)
    near = closest(name, names)
    return f"did you mean {near}?" if near else one_of(names)


def missing_attribute(owner: str, name: str, asked: object) -> AttributeError:
    subject = f"module {owner!r}" if isinstance(asked, list) else f"{type(asked).__name__!r} object"
    plain = f"{subject} has no attribute {name!r}"
    if name.startswith("_"):  # requested by copy, pickle, notebooks and `dir`, which need no remedy
        return AttributeError(plain)
    names = asked if isinstance(asked, list) else [one for one in dir(asked) if not one.startswith("_")]
    return AttributeError(f"{plain}; {_remedy(owner, name, names)}")


def takes_its_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that suggests the equivalent of an unknown argument.

    Errors for users, and Ctrl-C, are raised without our own frames in the traceback.

    Raises:
        CallError: It was called with such an argument.
    """
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        owner = f"{function.__name__}()"
        wrong = [f"{owner} has no argument {one!r}; {_remedy(owner, one, known)}" for one in kwargs if one not in known]
        if len(args) > code.co_argcount:
            wrong.append(_too_many(owner, known[: code.co_argcount], known[code.co_argcount :], args))
        try:
            if wrong:
                raise CallError("; ".join(wrong))
            return function(*args, **kwargs)
        except InternalError:
            raise
        except (KatibError, KeyboardInterrupt) as error:
            if isinstance(error, KeyboardInterrupt):
                vars(error)["_render_traceback_"] = partial(user_traceback, error)
            raise error.with_traceback(None) from None

    return checked


def _too_many(owner: str, positional: tuple[str, ...], named: tuple[str, ...], args: tuple[object, ...]) -> str:
    """Return the error of a call with too many positional arguments."""
    if positional == ("choices",):  # given one by one
        return f"{owner} takes one list; write [{', '.join(map(repr, args))}]"
    more = ", ".join(f"{name}=..." for name in named[:3])
    return f"{owner} takes only {' and '.join(positional)} without names; write the others as {more}"
