"""Optuna chooses a classifier of scikit-learn and its settings; the study is kept by `katib serve`."""

import optuna
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from katib.integrations.optuna import storage

X, y = load_digits(return_X_y=True)


def objective(trial: optuna.Trial) -> float:
    if trial.suggest_categorical("classifier", ["svc", "forest"]) == "svc":
        model = SVC(C=trial.suggest_float("C", 1e-2, 1e2, log=True), gamma="scale")
    else:
        model = RandomForestClassifier(max_depth=trial.suggest_int("max_depth", 2, 16, log=True), n_estimators=20)
    return cross_val_score(model, X[:600], y[:600], cv=3).mean()


if __name__ == "__main__":
    study = optuna.create_study(study_name="scikit-learn", direction="maximize", storage=storage(), load_if_exists=True)
    study.optimize(objective, n_trials=12)
    print(study.best_params, study.best_value)
