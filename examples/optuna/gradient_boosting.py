"""Optuna tunes XGBoost, and ends trees that do not promise much; the study is kept by `katib serve`."""

import optuna
import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from katib.integrations.optuna import storage

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)


class Pruning(xgboost.callback.TrainingCallback):
    """Reports each round of boosting, and ends the trial when its pruner says so."""

    def __init__(self, trial: optuna.Trial) -> None:
        super().__init__()
        self.trial = trial

    def after_iteration(self, _, epoch, evals_log):
        self.trial.report(evals_log["test"]["auc"][-1], epoch)
        if self.trial.should_prune():
            raise optuna.TrialPruned
        return False


def objective(trial: optuna.Trial) -> float:
    settings = {
        "objective": "binary:logistic",
        "eval_metric": "auc",
        "eta": trial.suggest_float("eta", 1e-3, 0.5, log=True),
        "max_depth": trial.suggest_int("max_depth", 1, 8),
        "lambda": trial.suggest_float("lambda", 1e-6, 10, log=True),
    }
    train, test = xgboost.DMatrix(X_train, y_train), xgboost.DMatrix(X_test, y_test)
    log: dict = {}
    xgboost.train(
        settings,
        train,
        num_boost_round=20,
        evals=[(test, "test")],
        evals_result=log,
        callbacks=[Pruning(trial)],
        verbose_eval=False,
    )
    return log["test"]["auc"][-1]


if __name__ == "__main__":
    study = optuna.create_study(study_name="xgboost", direction="maximize", storage=storage(), load_if_exists=True)
    study.optimize(objective, n_trials=12)
    print(study.best_params, study.best_value)
