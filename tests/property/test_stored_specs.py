"""What a user stored stays byte for byte, whatever of ours writes to the object from its beginning to its end."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from katib.engine.controllers.caches import Caches
from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL, as_read
from katib.engine.runtime.objects import EventType, Key, Object
from katib.model.defaults import with_defaults
from katib.model.types import Experiment
from katib.model.validation.update import changed_counts
from katib.places.cluster.admission.reviews import AdmissionReview
from katib.places.cluster.leader.leading import decode_experiment
from katib.places.cluster.webhooks.experiments import ExperimentAdmission
from tests.support.controllers import JOB, NAMESPACE, World, new_store
from tests.support.experiments import an_experiment
from tests.support.gate import CATALOG
from tests.support.stores import drain
from tests.support.transition_rules import broken_rules
from tests.support.waiting import eventually

Json = dict[str, Any]
DEMO = Key(NAMESPACE, "demo")


def put(*path: str, value: Any) -> Callable[[Json], None]:
    """Return a change that sets one field of a spec."""

    def change(spec: Json) -> None:
        place = spec
        for name in path[:-1]:
            place = place[0][name] if isinstance(place, list) else place[name]
        (place[0] if isinstance(place, list) else place)[path[-1]] = value

    return change


FORMS = [
    put("objective", "additionalMetricNames", value=[]),
    put("objective", "metricStrategies", value=[]),
    put("objective", "goal", value=None),
    put("objective", "goal", value=0),
    put("objective", "newer", value={"than": ["we", {"know": 1.0}]}),
    put("algorithm", "algorithmSettings", value=[]),
    put("algorithm", "algorithmSettings", value=[{"name": "seed", "value": 7}]),
    put("parameters", "feasibleSpace", value={"min": 0.01, "max": 1.0, "step": None, "list": []}),
    put("parameters", "note", value="of the author"),
    put("trialTemplate", "retain", value=False),
    put("trialTemplate", "primaryPodLabels", value={}),
    put("trialTemplate", "trialSpec", "metadata", value={"creationTimestamp": None, "labels": {}}),
    put("trialTemplate", "trialSpec", "status", value={}),
    put("earlyStopping", value=None),
    put("metricsCollectorSpec", value={}),
    put("metricsCollectorSpec", value={"collector": {"kind": "StdOut"}, "source": None}),
    put("nasConfig", value=None),
    put("resumePolicy", value="LongRunning"),
    put("maxFailedTrialCount", value=None),
    put("parallelTrialCount", value=None),
    put("newer", value=[1, 1.0, True, None, "", {}]),
]
"""Forms in which an accepted experiment may be stored, and which our types would write otherwise or not at all."""


def stored_form(changes: list[Callable[[Json], None]], *, through_webhook: bool) -> Json:
    raw = copy.deepcopy(an_experiment(maxTrialCount=2, resumePolicy="LongRunning"))
    for change in changes:
        change(raw["spec"])
    if not through_webhook:
        return raw
    admission = ExperimentAdmission(new_store(), catalog=lambda: CATALOG, collectors=lambda: ["StdOut"])
    verdict = admission.default(AdmissionReview("u", "CREATE", NAMESPACE, "demo", raw))
    return dict(raw if verdict.patched is None else verdict.patched)


def raise_budget(world: World) -> None:
    """Edit as the tuning service does, which knows the experiment only as our types read it."""

    def edit() -> bool:
        old = decode_experiment(world.store.get(EXPERIMENT, DEMO))
        new = with_defaults(structs.replace(old, spec=structs.replace(old.spec, max_trial_count=3)))
        world.store.patch(as_read(old), {"spec": changed_counts(old, new)})
        return True

    eventually(edit)


def life_of(raw: Json) -> list[Object]:
    """Return every state of our objects from the creation over an end and a larger budget to the deletion."""
    store = new_store()
    watches = [store.watch(kind, "0") for kind in (EXPERIMENT, SUGGESTION, TRIAL)]

    def caches_of(seen: Any, clock: Any) -> Caches:
        return Caches.of(seen, [JOB], clock, decode_experiment=decode_experiment)

    with World(store, caches_of=caches_of) as world:
        store.create(raw)
        eventually(lambda: decode(store).status.trials_succeeded == 2 and world.is_over())
        raise_budget(world)
        eventually(lambda: decode(store).status.trials_succeeded == 3)
        store.delete(EXPERIMENT, DEMO)
        eventually(lambda: not store.list(EXPERIMENT).items)
    return [event.object for watch in watches for event in drain(watch) if event.type is not EventType.DELETED]


def decode(store: Any) -> Experiment:
    return decode_experiment(store.get(EXPERIMENT, DEMO))


@given(st.lists(st.sampled_from(FORMS), max_size=6), st.booleans())
@settings(max_examples=25, deadline=None)
def test_no_writer_of_ours_changes_what_was_stored(
    changes: list[Callable[[Json], None]], through_webhook: bool
) -> None:
    raw = stored_form(changes, through_webhook=through_webhook)
    states: dict[str, list[Object]] = {}
    for obj in life_of(raw):
        states.setdefault(obj["metadata"]["uid"], []).append(obj)

    assert len(states) == 5
    for first, *later in states.values():
        for obj in later:
            assert changed_parts(first, obj) == []


def changed_parts(first: Object, obj: Object) -> list[str]:
    if first["kind"] == "Experiment":
        rest = [name for name in obj["spec"] if name != "maxTrialCount" and text(obj, name) != text(first, name)]
        return [*broken_rules(first, obj), *rest]
    return [name for name in first["spec"] if name != "requests" and text(obj, name) != text(first, name)]


def text(obj: Object, name: str) -> str:
    return json.dumps(obj["spec"].get(name), sort_keys=False)
