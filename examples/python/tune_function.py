"""Tune a function that is defined in this very file.

Run it with `python examples/python/tune_function.py`, in an environment that has katib and scikit-learn.
"""

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

import katib


def train(max_depth: int, min_samples_leaf: int, max_features: float, criterion: str) -> float:
    """Return the cross-validated accuracy of a small forest."""
    images, labels = load_digits(return_X_y=True)
    model = RandomForestClassifier(
        n_estimators=20,
        max_depth=max_depth,
        min_samples_leaf=min_samples_leaf,
        max_features=max_features,
        criterion=criterion,
        random_state=0,
    )
    return float(cross_val_score(model, images, labels, cv=3).mean())


if __name__ == "__main__":
    result = katib.tune(
        train,
        {
            "max_depth": katib.search.int(2, 16),
            "min_samples_leaf": katib.search.int(1, 10),
            "max_features": katib.search.double(0.05, 1.0),
            "criterion": katib.search.categorical(["gini", "entropy"]),
        },
        objective="accuracy",
        direction="maximize",
        max_trials=12,
        parallel=2,
        settings={"random_state": 1},
    )
    assert result.best is not None
    print(f"best accuracy {result.best.value:.4f} with {result.best.parameters}")
