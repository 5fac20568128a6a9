"""Optuna tunes a network of PyTorch Lightning, and ends what promises little; the study is kept by `katib serve`."""

import lightning
import optuna
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from katib.integrations.optuna import storage

X, y = load_digits(return_X_y=True)
DATA = TensorDataset(torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y))
TRAIN, TEST = random_split(DATA, [1_400, len(DATA) - 1_400], generator=torch.Generator().manual_seed(0))


class Network(lightning.LightningModule):
    """A hidden layer."""

    def __init__(self, width: int, lr: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
        self.lr = lr

    def training_step(self, batch, _):
        features, labels = batch
        return nn.functional.cross_entropy(self.layers(features), labels)

    def validation_step(self, batch, _):
        features, labels = batch
        self.log("accuracy", (self.layers(features).argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.lr)


class Pruning(lightning.Callback):
    """Reports each epoch, and ends the trial when its pruner says so."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def on_validation_end(self, trainer, _):
        if trainer.sanity_checking:
            return
        self.trial.report(trainer.callback_metrics["accuracy"].item(), trainer.current_epoch)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def objective(trial: optuna.Trial) -> float:
    model = Network(trial.suggest_int("width", 4, 64, log=True), trial.suggest_float("lr", 1e-4, 1e-1, log=True))
    trainer = lightning.Trainer(
        max_epochs=4,
        callbacks=[Pruning(trial)],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(TRAIN, 64, shuffle=True), DataLoader(TEST, 256))
    return trainer.callback_metrics["accuracy"].item()


if __name__ == "__main__":
    study = optuna.create_study(study_name="lightning", direction="maximize", storage=storage(), load_if_exists=True)
    study.optimize(objective, n_trials=8)
    print(study.best_params, study.best_value)
