"""The ledger against counting: after any sequence of changes, a tally is what a recount of all trials gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from katib.api.metrics import is_usable
from katib.api.types import ObjectiveSpec, Trial
from katib.controllers.experiment.ledger import TrialLedger
from katib.controllers.trial_states import TrialState
from katib.runtime.objects import Key
from tests.support.planning import objective, trial

STATES = ("", "Running", "Succeeded", "Failed", "Killed", "EarlyStopped", "MetricsUnavailable")
VALUES = (None, "0.5", "0.50", "-1", "2e-3", "nan", "inf", "-inf", "unavailable", "conv3x3", "conv5x5")
EXPERIMENTS = ("demo", "other")


@dataclass
class Model:
    """All trials in order of creation, counted from scratch each time."""

    trials: dict[str, tuple[int, Trial]] = field(default_factory=dict)
    created: int = 0

    def of(self, experiment: str) -> list[Trial]:
        found = sorted(self.trials.values(), key=lambda pair: pair[0])
        return [t for _, t in found if t.metadata.labels["katib.kubeflow.org/experiment"] == experiment]


def state(made: Trial) -> str:
    return made.status.conditions[0].type if made.status.conditions else "Pending"


def text(made: Trial) -> str:
    return made.status.observation.metrics[0].latest if made.status.observation else "unavailable"


def expected_best(trials: list[Trial], spec: ObjectiveSpec) -> str | None:
    """Scan all trials as Katib does: only a strictly better number replaces; without numbers the newest text stands."""
    sign = -1 if spec.type == "maximize" else 1
    best, text_best = None, None
    for made in trials:
        if state(made) not in ("Succeeded", "EarlyStopped"):
            continue
        value = text(made)
        if is_usable(value):
            if best is None or sign * float(value) < sign * float(text(best)):
                best = made
        elif value in ("conv3x3", "conv5x5"):
            text_best = made
    chosen = best or text_best
    return chosen.name if chosen else None


changes = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete"]),
        st.integers(0, 7),
        st.sampled_from(STATES),
        st.sampled_from(VALUES),
        st.sampled_from(EXPERIMENTS),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(changes=changes, direction=st.sampled_from(["minimize", "maximize"]))
def test_a_tally_equals_a_recount(changes: list[tuple[str, int, str, str | None, str]], direction: str) -> None:
    ledger, model, spec = TrialLedger(), Model(), objective(direction)
    for action, number, condition, value, home in changes:
        name = f"t{number}"
        order, old = model.trials.get(name, (-1, None))
        if action == "delete":
            if old is not None:
                ledger.apply(old, None)
                del model.trials[name]
            continue
        uid = old.metadata.uid if old is not None else f"uid-{model.created}"
        owner = old.metadata.labels["katib.kubeflow.org/experiment"] if old is not None else home
        conditions = (condition,) if condition else ()
        new = trial(name, *conditions, value=value, experiment_name=owner, uid=uid, objective_spec=spec)
        ledger.apply(old, new)
        if old is None:
            order, model.created = model.created, model.created + 1
        model.trials[name] = (order, new)

        for experiment in EXPERIMENTS:
            _compare(ledger, model, experiment, spec)
    for experiment in EXPERIMENTS:
        _compare(ledger, model, experiment, spec)


def _compare(ledger: TrialLedger, model: Model, experiment: str, spec: ObjectiveSpec) -> None:
    trials = model.of(experiment)
    tally = ledger.tally(Key("default", experiment))

    by_state = {word: tuple(t.name for t in trials if state(t) == word) for word in TrialState}
    assert dict(tally.counts) == {word: len(names) for word, names in by_state.items() if names}
    assert dict(tally.names) == {word: names for word, names in by_state.items() if names}
    assert sorted(tally.active) == sorted(by_state[TrialState.RUNNING] + by_state[TrialState.PENDING])
    assert tally.total == len(trials)
    assert tally.completed == len(trials) - len(tally.active)
    assert (tally.best.name if tally.best else None) == expected_best(trials, spec)
