"""Trial templates in ConfigMaps: how often they are read, and what happens while one is not there."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.experiment.config_maps import KEPT_SECONDS, MISSING_SECONDS, TemplateConfigMaps
from katib.engine.controllers.job_caches import identity
from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, ObjectStore
from katib.errors import UnavailableError
from katib.model.conditions import find_condition
from katib.model.templates.source import OFFERED, OFFERED_LABEL
from katib.model.types import Condition, Trial
from tests.support.clock import VirtualClock
from tests.support.controllers import JOB, NAMESPACE, JobEnd, World, new_store
from tests.support.experiments import a_job, a_template, an_experiment
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.memory_store import MemoryStore
from tests.support.waiting import eventually

OFFER = {OFFERED_LABEL: OFFERED}
PLACE = Key(NAMESPACE, "templates")


def templates(key: Key = PLACE, *, text: str = "", labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    metadata = {"namespace": key.namespace, "name": key.name, "labels": labels or {}}
    job = {"job.yaml": text or yaml.safe_dump(a_job())}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**job, **data}}


def an_experiment_from(key: Key = PLACE, **spec: Any) -> dict[str, Any]:
    place = {"configMapNamespace": key.namespace, "configMapName": key.name, "templatePath": "job.yaml"}
    conditions: dict[str, Any] = {
        "successCondition": 'status.conditions.#(type=="Complete")#|#(status=="True")#',
        "failureCondition": 'status.conditions.#(type=="Failed")#|#(status=="True")#',
    }
    return an_experiment(trialTemplate=a_template(trialSpec=None, configMap=place, **conditions), **spec)


def unwatched(store: ObjectStore, clock: Clock) -> Caches:
    """Return the caches of an installation that offers no ConfigMap itself: all others have to be read."""
    return Caches.of(store, [JOB], clock, offered=MemoryStore(()))


class Reads:
    """Counts how often ConfigMaps are read one by one."""

    def __init__(self) -> None:
        self.count = 0

    def through(self, store: ObjectStore) -> ObjectStore:
        return FaultyStore(store, self._note)

    def _note(self, call: Call) -> None:
        self.count += call.verb == "get" and call.kind == CONFIG_MAP and call.before


def running(world: World) -> Condition | None:
    return find_condition(world.experiment().status.conditions, "Running")


def waits(world: World, status: str) -> bool:
    condition = running(world)
    return condition is not None and (condition.status, condition.reason) == (status, "TrialTemplateMissing")


def never_ends(_trial: Trial) -> JobEnd:
    return JobEnd(ends=False)


# --- how often -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [pytest.param({}, 0, id="watched"), pytest.param({"caches_of": unwatched}, 1, id="not watched")],
)
def test_a_template_is_not_read_again_at_each_step_of_its_experiment(options: dict[str, Any], expected: int) -> None:
    store, reads = new_store(), Reads()
    store.create(templates())
    with World(store, through=reads.through, **options) as world:
        eventually(world.caches.config_maps.has_synced)
        world.submit(an_experiment_from(maxTrialCount=20))
        experiment = world.ended()

    assert experiment.status.trials_succeeded == 20
    assert reads.count == expected


class Library:
    """ConfigMaps as the controllers see them, with a clock of the test's."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.reads = Reads()
        self.store = MemoryStore(())
        offered: Informer[Any] = Informer(MemoryStore(()), CONFIG_MAP, identity, clock=self.clock)
        self.config_maps = TemplateConfigMaps(self.reads.through(self.store), offered, self.clock)

    def find(self) -> Any:
        return self.config_maps.find(PLACE)


def test_a_config_map_that_nobody_watches_is_read_again_after_a_while() -> None:
    library = Library()
    first = library.store.create(templates())
    assert library.find() == first
    second = library.store.update({**first, "data": {"job.yaml": "edited"}})

    library.clock.advance(KEPT_SECONDS - 1)
    assert library.find() == first
    library.clock.advance(1)
    assert library.find() == second
    assert library.reads.count == 2


def test_a_config_map_that_is_missing_is_looked_for_more_often() -> None:
    library = Library()
    assert library.find() is library.find() is None
    stored = library.store.create(templates())

    library.clock.advance(MISSING_SECONDS)
    assert library.find() == stored
    assert library.reads.count == 2


def test_a_config_map_that_changed_is_read_at_once() -> None:
    library = Library()
    assert library.find() is None
    stored = library.store.create(templates())

    library.config_maps.forget(PLACE)

    assert library.find() == stored


# --- while it is not there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("caches_of", [lambda store, clock: Caches.of(store, [JOB], clock), unwatched])
def test_an_experiment_waits_for_its_template_and_goes_on_by_itself(
    caches_of: Callable[[ObjectStore, Clock], Caches], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setattr("katib.engine.controllers.experiment.config_maps.MISSING_SECONDS", 0.05)
    monkeypatch.setattr("katib.engine.controllers.experiment.reconciler.MISSING_SECONDS", 0.05)
    with World(caches_of=caches_of) as world:
        world.submit(an_experiment_from())
        eventually(lambda: waits(world, "False"))
        condition = running(world)
        assert condition is not None
        golden(condition.message)
        assert "TrialTemplateMissing" in world.events.reasons()

        world.store.create(templates())
        experiment = world.ended()

    assert [(c.type, c.reason) for c in experiment.status.conditions] == [
        ("Created", "ExperimentCreated"),
        ("Running", "ExperimentRunning"),
        ("Succeeded", "ExperimentMaxTrialsReached"),
    ]


def test_trials_that_run_go_on_while_the_template_is_missing() -> None:
    """It used to fail the experiment for good as soon as none ran any more."""
    with World(script=never_ends) as world:
        stored = world.store.create(templates())
        world.submit(an_experiment_from(maxTrialCount=4, parallelTrialCount=2))
        eventually(lambda: world.experiment().status.trials_running == 2)
        world.store.delete(CONFIG_MAP, PLACE)
        eventually(lambda: waits(world, "True"))

        for job in world.store.list(JOB).items:
            (trial,) = [trial for trial in world.trials() if trial.name == job["metadata"]["name"]]
            world.end_job(job, trial, JobEnd())
        eventually(lambda: waits(world, "False"))
        assert world.experiment().status.trials == 2
        world.store.create({**stored, "metadata": templates()["metadata"]})
        eventually(lambda: world.experiment().status.trials_running == 2)

        condition = running(world)
        assert condition is not None
        assert (condition.status, condition.reason) == ("True", "ExperimentRunning")
        assert world.experiment().status.trials == 4


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda kept: kept["metadata"].update(labels={}), id="it is offered no more"),
        pytest.param(lambda kept: kept.update(data={}), id="the key is gone"),
    ],
)
def test_a_template_of_another_namespace_is_used_as_long_as_it_is_offered(
    change: Callable[[dict[str, Any]], None],
) -> None:
    elsewhere = Key("shared", "templates")
    with World() as world:
        world.store.create(templates(elsewhere, labels=OFFER))
        world.submit(an_experiment_from(elsewhere, maxTrialCount=None, parallelTrialCount=1))
        eventually(lambda: (world.experiment().status.trials or 0) >= 2)

        stored = copy.deepcopy(dict(world.store.get(CONFIG_MAP, elsewhere)))
        change(stored)
        world.store.update(stored)

        eventually(lambda: waits(world, "False"))


def test_a_restart_while_the_template_is_missing_changes_nothing() -> None:
    store = new_store()
    with World(store) as world:
        world.submit(an_experiment_from())
        eventually(lambda: waits(world, "False"))
    (before,) = store.list(EXPERIMENT).items
    with World(store) as world:
        world.submit(an_experiment(name="other"))
        world.ended("other")
        (after,) = [obj for obj in store.list(EXPERIMENT).items if obj["metadata"]["name"] == "demo"]
        assert after["status"] == before["status"]

        store.create(templates())
        assert world.ended().status.trials_succeeded == 3


def test_a_store_that_does_not_answer_is_no_missing_template() -> None:
    calls: Counter[str] = Counter()

    def fail_once(call: Call) -> BaseException | None:
        if call.verb == "get" and call.kind == CONFIG_MAP and call.before:
            calls["get"] += 1
            return UnavailableError("no answer") if calls["get"] == 1 else None
        return None

    store = new_store()
    store.create(templates())
    with World(store, through=lambda inner: FaultyStore(inner, fail_once), caches_of=unwatched) as world:
        world.submit(an_experiment_from())
        world.ended()

        assert "TrialTemplateMissing" not in world.events.reasons()


@pytest.mark.parametrize("text", ["- a", "a: b: c", "kind: ${trialParameters.unknown}"])
def test_a_template_that_is_wrong_fails_the_experiment_with_its_path(text: str, golden: Golden) -> None:
    with World() as world:
        world.store.create(templates(text=text))
        world.submit(an_experiment_from())
        experiment = world.ended()

    last = experiment.status.conditions[-1]
    assert last.type == "Failed"
    golden(last.message)
