"""Callbacks within the real training libraries, each on a problem of a few numbers.

`make test-callbacks` runs them with all libraries; elsewhere those whose library is missing are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metrics_collector.parsers import TextParser

pytestmark = [
    pytest.mark.filterwarnings("default")  # those of the libraries are theirs
]

LIGHTNING = os.environ.get("LIGHTNING", "lightning.pytorch")
"""`pytorch_lightning` tests the other name under which it is published: a process can use one of them."""

ROOT = Path(__file__).resolve().parents[2]
REASON = "not installed; `make test-callbacks` installs it"


@pytest.fixture(autouse=True)
def _outside_of_a_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KATIB_DB_MANAGER_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)  # libraries leave files behind


def steps(capsys: pytest.CaptureFixture[str], metric: str) -> list[int | None]:
    """Return the steps of what was reported of a metric; all of it are numbers."""
    readings = TextParser([metric]).feed(capsys.readouterr().out.encode())
    assert all(float(reading.value) == float(reading.value) for reading in readings)
    return [reading.step for reading in readings]


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    features = random.normal(size=(64, 3)).astype("float32")
    return features, features.sum(axis=1, keepdims=True)


def test_nothing_is_imported_before_a_callback_is_asked_for() -> None:
    libraries = ("lightning", "keras", "transformers", "xgboost", "lightgbm", "torch", "numpy")
    code = f"import sys, katib.callbacks; print([name for name in {libraries} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_an_unknown_callback_is_an_attribute_error() -> None:
    import katib.callbacks

    with pytest.raises(AttributeError, match="has no attribute 'OtherCallback'"):
        _ = katib.callbacks.OtherCallback


def test_lightning_reports_after_every_epoch(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lightning = pytest.importorskip(LIGHTNING, reason=REASON)
    import torch

    from katib.callbacks import LightningCallback

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch: Any, _index: int) -> Any:
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self.training_step(batch, index))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*map(torch.from_numpy, data())), batch_size=16)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[LightningCallback(["val_loss"])],
    )
    trainer.fit(Model(), loader, loader)

    assert steps(capsys, "val_loss") == [0, 1, 2]


def test_keras_reports_after_every_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    keras = pytest.importorskip("keras", reason=REASON)
    from katib.callbacks import KerasCallback

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    model.fit(*data(), epochs=3, validation_split=0.25, verbose=0, callbacks=[KerasCallback()])

    assert steps(capsys, "val_loss") == [0, 1, 2]


def test_transformers_reports_every_log_entry(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason=REASON)
    torch = pytest.importorskip("torch", reason=REASON)
    from katib.callbacks import TransformersCallback

    class Model(torch.nn.Module):  # type: ignore[misc]  # what there is of torch is not known to mypy
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}

    features, labels = data()
    rows = [{"x": row, "labels": label} for row, label in zip(features, labels, strict=True)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=6,
        logging_steps=2,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        model=Model(), args=arguments, train_dataset=rows, callbacks=[TransformersCallback(["loss"])]
    )
    trainer.train()

    assert steps(capsys, "loss") == [2, 4, 6]


def test_xgboost_reports_after_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    xgboost = pytest.importorskip("xgboost", reason=REASON)
    from katib.callbacks import XGBoostCallback

    matrix = xgboost.DMatrix(*data())
    xgboost.train(
        {"max_depth": 2, "nthread": 1},
        matrix,
        num_boost_round=4,
        evals=[(matrix, "validation")],
        verbose_eval=False,
        callbacks=[XGBoostCallback()],
    )
    assert steps(capsys, "validation-rmse") == [0, 1, 2, 3]

    xgboost.cv({"max_depth": 2, "nthread": 1}, matrix, num_boost_round=2, callbacks=[XGBoostCallback(["test-rmse"])])
    assert steps(capsys, "test-rmse") == [0, 1]


def test_lightgbm_reports_after_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason=REASON)
    from katib.callbacks import lightgbm_callback

    features, labels = data()
    settings = {"verbosity": -1, "objective": "regression", "num_threads": 1, "min_data_in_leaf": 5}
    training = lightgbm.Dataset(features, labels.ravel())
    lightgbm.train(settings, training, 3, valid_sets=[training], valid_names=["valid"], callbacks=[lightgbm_callback()])
    assert steps(capsys, "valid-l2") == [0, 1, 2]

    lightgbm.cv(settings, training, 2, nfold=2, stratified=False, callbacks=[lightgbm_callback()])
    assert steps(capsys, "valid-l2") == [0, 1]
