"""Tree-structured Parzen estimators, on Optuna."""
