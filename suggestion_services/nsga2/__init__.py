"""A genetic algorithm for several objectives, on Optuna."""
