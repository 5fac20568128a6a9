"""How the SDK is used, for the type checker: `mypy tests/typing/api.py` has to accept every line. Never run."""

from __future__ import annotations

import katib


def train(lr: float, layers: int) -> float:
    for epoch in range(3):
        katib.report(accuracy=lr * epoch, loss=1.0)
        if (folder := katib.checkpoint_dir()) is not None:
            (folder / "epoch").write_text(str(epoch))
    return lr * layers


def from_mapping(config: dict[str, float]) -> dict[str, float]:
    return {"accuracy": config["lr"]}


result: katib.TuneResult = katib.tune(
    train,
    {
        "lr": katib.search.double(1e-4, 1e-1, log=True),
        "layers": katib.search.int(1, 4),
        "activation": katib.search.categorical(["relu", None]),
        "width": katib.search.discrete([8, 16, 0.5]),
        "constant": object(),
    },
    objective="accuracy",
    direction="maximize",
    goal=0.99,
    max_trials=20,
    parallel=2,
    max_failed=3,
    algorithm="tpe",
    settings={"random_state": 1},
    early_stopping="medianstop",
    early_stopping_settings={"min_trials_required": 3},
    additional_metrics=["loss"],
    name="example",
    data_dir=".katib",
    checkpoint=True,
    verbose=False,
)
best_value: float | None = result.best.value
learning_rate: float = result.best.parameters["lr"]
states: list[str] = [trial.state for trial in result.trials]

try:
    katib.tune(from_mapping, {"lr": katib.search.double(0, 1)})
except katib.TuneError as error:
    words: str = str(error)

# Names of other libraries are errors of types, too, although the interpreter answers them with ours.
katib.tune(from_mapping, {"lr": katib.search.double(0, 1)}, n_trials=3)  # type: ignore[call-arg]
result.best_params  # type: ignore[attr-defined]  # noqa: B018
result.best.params  # type: ignore[attr-defined]  # noqa: B018
katib.create_study  # type: ignore[attr-defined]  # noqa: B018
katib.search.uniform  # type: ignore[attr-defined]  # noqa: B018
