"""What every TuningService promises, whichever side of HTTP it is on.

A new implementation is one more entry in WORLDS: a context manager that yields a service and a way to let an
experiment run to its end. The two clusters differ in who keeps the objects; a stand-in works on them in both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import yaml

from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.engine.controllers.kinds import EXPERIMENT
from katib.engine.runtime.objects import Key
from katib.errors import AlreadyExistsError, ExpiredError, InvalidError, NotFoundError, UnavailableError
from katib.model.marks import Marks, marks_of
from katib.model.names import CONFIRMS_LABEL, STOPPED, STOPPED_ANNOTATION
from katib.model.types import Experiment, Trial
from katib.places.machine import open_engine
from katib.service.tuning.reading import assignments_of
from katib.service.tuning.service import NOW, RunExperiment, TrialOrder, TuningService, WaysOnward, chosen_values
from katib.service.tuning.states import is_completed, objective_value, state_of
from tests.support.cluster import events_in, memory_cluster, memory_world, open_world, server_world
from tests.support.refusals import refused
from tests.support.tuning import MemoryTuningService, document

NS = "default"


@dataclass(frozen=True)
class World:
    """A service, and a way to let an experiment of it run to its end."""

    service: TuningService
    finish: Callable[[str], None]
    is_cluster: bool = False


@contextmanager
def fake(_request: pytest.FixtureRequest) -> Iterator[World]:
    service = MemoryTuningService()
    yield World(service, lambda name: service.play(NS, name))


@contextmanager
def over_http(_request: pytest.FixtureRequest) -> Iterator[World]:
    service = MemoryTuningService()
    with (
        Server(service, host="127.0.0.1", port=0, token="secret") as server,
        HttpTuningService(server.url, "secret") as client,
    ):
        yield World(client, lambda name: service.play(NS, name))


@contextmanager
def engine(request: pytest.FixtureRequest) -> Iterator[World]:
    with open_engine(data_dir=request.getfixturevalue("tmp_path_factory").mktemp("engine")) as running:
        yield World(running.service, lambda name: _run(running.start, running.service, name))
        running.stop()


@contextmanager
def cluster(_request: pytest.FixtureRequest) -> Iterator[World]:
    with memory_world() as made:
        yield World(made.service, lambda name: made.stand_in.play(NS, name), is_cluster=True)


@contextmanager
def api_server(request: pytest.FixtureRequest) -> Iterator[World]:
    with server_world(request.getfixturevalue("api_server")) as made:
        yield World(made.service, lambda name: made.stand_in.play(NS, name), is_cluster=True)


def _run(start: Callable[[], None], service: TuningService, name: str) -> None:
    start()
    for change in service.changes(NS, name, timeout_seconds=30):
        if isinstance(change.object, Experiment) and is_completed(change.object):
            return
    raise AssertionError(f"{name} did not end")


WORLDS: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[World]]] = {
    "fake": fake,
    "http": over_http,
    "engine": engine,
    "cluster": cluster,
    "api-server": api_server,
}
MARKS = {"api-server": [pytest.mark.cluster]}


@pytest.fixture(params=[pytest.param(make, id=name, marks=MARKS.get(name, ())) for name, make in WORLDS.items()])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with request.param(request) as made:
        yield made


@pytest.fixture(
    params=[
        pytest.param(WORLDS[name], id=name, marks=MARKS.get(name, ())) for name in ("engine", "cluster", "api-server")
    ]
)
def objects(request: pytest.FixtureRequest) -> Iterator[World]:
    """The worlds that keep more objects than those of the product."""
    with request.param(request) as made:
        yield made


@pytest.fixture
def finished(world: World) -> TuningService:
    """A service in which the experiment `demo` ran its three trials."""
    return _ran(world)


@pytest.fixture(scope="module")
def kept(request: pytest.FixtureRequest) -> Iterator[Callable[[str], TuningService]]:
    """Each world once, in which the experiment `demo` ran its three trials."""
    with ExitStack() as stack:
        yield cache(lambda name: _ran(stack.enter_context(WORLDS[name](request))))


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in WORLDS])
def ended(request: pytest.FixtureRequest, kept: Callable[[str], TuningService]) -> Iterator[TuningService]:
    """As `finished`, for tests that only read: all of them share it, but on an API server, which all worlds share."""
    if request.param == "api-server":
        with api_server(request) as made:
            yield _ran(made)
    else:
        yield kept(request.param)


def _ran(world: World) -> TuningService:
    world.service.submit(document("demo"), source="demo.yaml")
    world.finish("demo")
    return world.service


def test_a_submitted_experiment_is_created_and_can_be_read(world: World) -> None:
    submission = world.service.submit(document("demo"), source="demo.yaml")

    assert submission.outcome == "created"
    assert submission.experiment.name == "demo"
    assert world.service.get(Experiment, NS, "demo").name == "demo"
    assert [e.name for e in world.service.experiments()] == ["demo"]


def test_what_is_done_differently_here_comes_back_as_a_notice(world: World) -> None:
    submission = world.service.submit(document("demo"), source="demo.yaml")

    assert any("image" in notice for notice in submission.notices) != world.is_cluster


def test_submitting_the_same_unfinished_experiment_changes_nothing(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml")

    assert world.service.submit(document("demo"), source="demo.yaml").outcome == "unchanged"


def with_settings(value: str) -> str:
    """Return the usual document with a ConfigMap and a Secret beside it."""
    metadata = {"name": "settings"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": value}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": value}}
    return yaml.safe_dump_all([json.loads(document("demo")), config_map, secret])


def test_config_maps_and_secrets_that_changed_are_applied_and_told(objects: World) -> None:
    objects.service.submit(with_settings("old"), source="demo.yaml")
    again = objects.service.submit(with_settings("old"), source="demo.yaml")
    changed = objects.service.submit(with_settings("new"), source="demo.yaml")
    afterwards = objects.service.submit(with_settings("new"), source="demo.yaml")

    assert (again.outcome, again.notices) == ("unchanged", ())
    assert changed.outcome == "updated"
    assert [notice.partition(" changed")[0] for notice in changed.notices] == ["ConfigMap settings", "Secret settings"]
    assert (afterwards.outcome, afterwards.notices) == ("unchanged", ())


def test_an_experiment_that_is_being_deleted_is_not_submitted_again() -> None:
    store, key = memory_cluster(), Key(NS, "demo")
    with open_world(store, events_in(store)) as made:
        made.service.submit(document("demo"), source="demo.yaml")
        store.patch(store.get(EXPERIMENT, key), {"metadata": {"finalizers": ["example.com/hold"]}})
        store.delete(EXPERIMENT, key)

        with pytest.raises(AlreadyExistsError, match="is being deleted"):
            made.service.submit(document("demo"), source="demo.yaml")


def test_config_maps_that_changed_after_the_end_are_refused_with_what_to_do(objects: World) -> None:
    objects.service.submit(with_settings("old"), source="demo.yaml")
    objects.finish("demo")
    unchanged = objects.service.submit(with_settings("old"), source="demo.yaml")

    with pytest.raises(InvalidError) as caught:
        objects.service.submit(with_settings("new"), source="demo.yaml")

    assert unchanged.outcome == "unchanged"
    assert {error.origin for error in caught.value.errors} == {"companion-changed"}


def test_a_finished_experiment_runs_once_more_where_that_is_chosen(finished: TuningService, world: World) -> None:
    def run(**choice: Any) -> RunExperiment:
        return finished.run(document("demo"), source="demo.yaml", **choice, command="katib run demo.yaml")

    left = run()
    if world.is_cluster:
        with refused("choice-of-a-cluster"):
            run(restart=True)
        assert (left.outcome, left.ways) == ("unchanged", None)
        return
    with refused("choice-nothing-failed"):
        run(retry_failed=True)
    more, again = run(more=2), run(restart=True)

    assert left.outcome == "unchanged"
    assert left.ways == WaysOnward((), lost=0, can_retry=False, may_have_more=True)
    assert (more.outcome, more.experiment.spec.max_trial_count) == ("updated", 5)
    assert (again.outcome, again.ways) == ("created", None)
    assert again.notes == ("demo starts again; the old one is demo-1 now",)
    assert {e.name for e in finished.experiments()} == {"demo", "demo-1"}


def test_a_broken_document_is_refused_with_field_errors(world: World) -> None:
    with pytest.raises(InvalidError) as caught:
        world.service.submit("just a sentence", source="demo.yaml")

    assert caught.value.errors
    assert list(world.service.experiments()) == []

    with pytest.raises(InvalidError):
        world.service.validate("[1, 2]", source="demo.yaml")


def test_validating_stores_nothing(world: World) -> None:
    notices = world.service.validate(document("demo"), source="demo.yaml")

    assert any("image" in notice for notice in notices) != world.is_cluster
    assert list(world.service.experiments()) == []


def test_the_given_namespace_is_used_when_the_document_names_none(world: World) -> None:
    assert world.service.submit(document("demo"), source="demo.yaml", namespace="team").experiment.namespace == "team"
    assert list(world.service.experiments("default")) == []
    assert len(world.service.experiments("team")) == 1


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda s: s.get(Experiment, NS, "ghost"), id="get"),
        pytest.param(lambda s: s.trials(NS, "ghost"), id="trials"),
        pytest.param(lambda s: s.best(NS, "ghost"), id="best"),
        pytest.param(lambda s: s.metrics(NS, "ghost"), id="metrics"),
        pytest.param(lambda s: s.curve(NS, "ghost", points=4), id="curve"),
        pytest.param(lambda s: s.readings(NS, "ghost"), id="readings"),
        pytest.param(lambda s: list(s.logs(NS, "ghost")), id="logs"),
        pytest.param(lambda s: s.files(NS, "ghost"), id="files"),
        pytest.param(lambda s: list(s.file(NS, s.trials(NS, "demo").items[0].name, "ghost.png")), id="file"),
        pytest.param(lambda s: s.events("Experiment", NS, "ghost"), id="events"),
        pytest.param(lambda s: list(s.changes(NS, "ghost", timeout_seconds=1)), id="changes"),
        pytest.param(lambda s: s.why(NS, "ghost"), id="why"),
        pytest.param(lambda s: s.confirmation(NS, "ghost"), id="confirmation"),
        pytest.param(lambda s: s.confirm(NS, "ghost"), id="confirm"),
        pytest.param(lambda s: s.delete(NS, "ghost"), id="delete"),
    ],
)
def test_a_missing_object_is_not_found(ended: TuningService, call: Callable[[TuningService], object]) -> None:
    with pytest.raises(NotFoundError, match="ghost"):
        call(ended)


def test_trials_come_oldest_first_and_in_pages(ended: TuningService) -> None:
    whole = ended.trials(NS, "demo")
    first = ended.trials(NS, "demo", limit=2)
    second = ended.trials(NS, "demo", limit=2, cursor=first.cursor)

    assert whole.total == first.total == 3
    assert first.cursor
    assert not second.cursor
    assert [*(one.name for one in first.items), *(one.name for one in second.items)] == [
        *(one.name for one in whole.items)
    ]


@pytest.mark.parametrize("order", ["age", "name", "objective", "duration"])
def test_the_pages_of_every_order_are_the_whole_list(ended: TuningService, order: TrialOrder) -> None:
    whole = ended.trials(NS, "demo", order=order)
    first = ended.trials(NS, "demo", order=order, limit=2)
    second = ended.trials(NS, "demo", order=order, limit=2, cursor=first.cursor)

    assert [*first.items, *second.items] == [*whole.items]
    assert sorted(one.name for one in whole.items) == sorted(one.name for one in ended.trials(NS, "demo").items)


def test_the_best_trial_has_the_lowest_loss_and_is_on_top(ended: TuningService) -> None:
    losses = [float(objective_value(t) or "nan") for t in ended.trials(NS, "demo", order="objective").items]
    names = [one.name for one in ended.trials(NS, "demo", order="name").items]

    assert losses == sorted(losses)
    assert names == sorted(names)

    best = ended.best(NS, "demo")
    losses = [float(objective_value(t) or "nan") for t in ended.trials(NS, "demo").items]

    assert best is not None
    assert float(objective_value(best) or "nan") == min(losses)

    assert ended.trials(NS, "demo", states=("Succeeded",)).total == 3
    assert ended.trials(NS, "demo", states=("Failed", "Killed")).total == 0


@pytest.mark.parametrize("cursor", ["abc", "-1", "\u00b2", "1,2"])
def test_a_cursor_of_another_list_is_bad_input(ended: TuningService, cursor: str) -> None:
    with pytest.raises(InvalidError, match="start without one"):
        ended.trials(NS, "demo", cursor=cursor)


def test_without_a_finished_trial_there_is_no_best(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml", namespace="empty")

    assert world.service.best("empty", "demo") is None or is_completed(world.service.best("empty", "demo") or {})


def test_what_a_trial_printed_is_in_its_log_and_in_its_metrics(ended: TuningService) -> None:
    trial = ended.trials(NS, "demo").items[0]
    value = assignments_of(trial)["x"]
    readings = ended.metrics(NS, trial.name, metric="loss")

    assert f"loss={value}" in b"".join(ended.logs(NS, trial.name)).decode()
    assert [reading.value for reading in readings] == [value]
    assert readings[0].time.tzinfo is not None
    assert list(ended.metrics(NS, trial.name, metric="other")) == []
    assert list(ended.curve(NS, trial.name, points=4)) == list(readings)


def test_readings_go_on_behind_a_cursor(ended: TuningService) -> None:
    trial = ended.trials(NS, "demo").items[0]
    first = ended.readings(NS, trial.name)
    after = ended.readings(NS, trial.name, since=first.cursor)

    assert [(reading.name, reading.value) for reading in first.items] == [("loss", assignments_of(trial)["x"])]
    assert first.items[0].time.tzinfo is not None
    assert (after.items, after.cursor) == ((), first.cursor)
    assert ended.readings(NS, trial.name, since=NOW) == after


@pytest.mark.parametrize("cursor", ["abc", "-1", "\u00b2", "1" * 40])
def test_a_cursor_of_no_readings_is_bad_input(ended: TuningService, cursor: str) -> None:
    trial = ended.trials(NS, "demo").items[0].name

    with pytest.raises(InvalidError, match="start without one"):
        ended.readings(NS, trial, since=cursor)


def test_the_log_of_an_ended_trial_may_be_followed_and_its_tail_has_so_many_lines(ended: TuningService) -> None:
    trial = ended.trials(NS, "demo").items[0].name

    assert b"".join(ended.logs(NS, trial, tail_lines=0)) == b""
    assert len(b"".join(ended.logs(NS, trial, tail_lines=1)).splitlines()) == 1

    trial = ended.trials(NS, "demo").items[0].name

    assert b"loss=" in b"".join(ended.logs(NS, trial, follow=True))


def test_events_of_an_experiment_include_those_of_its_trials(ended: TuningService) -> None:
    trials = {t.name for t in ended.trials(NS, "demo").items}
    events = ended.events("Experiment", NS, "demo")

    assert trials <= {event.name for event in events if event.kind == "Trial"}
    assert sorted(event.time for event in events) == [event.time for event in events]


def test_changes_open_with_everything_and_go_on_behind_a_cursor(ended: TuningService) -> None:
    changes = list(ended.changes(NS, "demo", timeout_seconds=0.3))
    opening = {change.object.name for change in changes if change.type == "ADDED"}

    assert opening >= {"demo", *(one.name for one in ended.trials(NS, "demo").items)}

    seen = list(ended.changes(NS, "demo", timeout_seconds=0.3))
    cursor = next(change.cursor for change in reversed(seen) if change.cursor)

    assert list(ended.changes(NS, "demo", timeout_seconds=0.3, since=cursor)) == []


def test_changes_show_every_step_of_a_run(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml")
    changes = world.service.changes(NS, "demo", timeout_seconds=120)
    next(changes)
    world.finish("demo")
    states = {}
    for change in changes:
        states[change.object.name] = state_of(change.object)
        if list(states.values()).count("Succeeded") == 4:
            break

    assert states.pop("demo") == "Succeeded"
    assert set(states) == {one.name for one in world.service.trials(NS, "demo").items}


def test_changes_end_with_the_deletion(finished: TuningService) -> None:
    changes = finished.changes(NS, "demo", timeout_seconds=120)
    next(changes)
    finished.delete(NS, "demo")
    last = list(changes)[-1]

    assert (last.type, last.document["kind"]) == ("DELETED", "Experiment")


def test_a_trial_by_hand_needs_an_experiment_that_goes_on(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml")

    with pytest.raises(UnavailableError, match="has not started yet"):
        world.service.add_trial(NS, "demo", chosen_values({"x": "0.5"}))
    with pytest.raises(InvalidError, match="is not between"):
        world.service.add_trial(NS, "demo", chosen_values({"x": "50"}))
    with pytest.raises(NotFoundError):
        world.service.add_trial(NS, "ghost", chosen_values({"x": "0.5"}))
    world.finish("demo")
    with pytest.raises(InvalidError, match="it has ended"):
        world.service.add_trial(NS, "demo", chosen_values({"x": "0.5"}))


def test_the_best_configurations_become_an_experiment_of_their_own(finished: TuningService) -> None:
    before = finished.confirmation(NS, "demo")
    made = finished.confirm(NS, "demo", top=2, repeats=3, parallel=5, command="katib confirm demo")
    again = finished.confirm(NS, "demo", top=2, repeats=3)
    confirming = finished.get(Experiment, NS, "demo-confirm")
    best = finished.trials(NS, "demo", order="objective").items[:2]

    assert (before, again, finished.confirmation(NS, "demo-confirm")) == (None, made, made)
    assert (made.experiment, made.confirmed_by, made.runs, made.budget) == ("demo", "demo-confirm", 0, 6)
    assert [row.trial for row in made.configurations] == [trial.name for trial in best]
    assert made.best == ""
    assert confirming.metadata.labels[CONFIRMS_LABEL] == "demo"
    assert confirming.spec.trial_template == finished.get(Experiment, NS, "demo").spec.trial_template
    assert (confirming.spec.max_trial_count, confirming.spec.parallel_trial_count) == (6, 5)
    points = [{a.name: a.value for a in one.parameter_assignments} for one in confirming.spec.initial_trials]
    assert points == [assignments_of(trial) for trial in best] * 3
    with refused("confirm-itself"):
        finished.confirm(NS, "demo-confirm")


def test_an_experiment_without_a_value_or_an_end_is_not_confirmed(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml")

    with refused("confirm-running"):
        world.service.confirm(NS, "demo")

    world.service.edit(NS, "demo", stopped=True)
    with pytest.raises(InvalidError) as caught:
        world.service.confirm(NS, "demo")
    assert {error.origin for error in caught.value.errors} <= {"confirm-nothing", "confirm-running"}


def test_a_preview_fills_the_template_and_stores_nothing(world: World) -> None:
    preview = world.service.preview(document("demo"), source="demo.yaml")

    container = preview.run_spec["spec"]["template"]["spec"]["containers"][0]
    assert f"echo loss={preview.assignments['x']}" in container["command"][-1]
    assert list(world.service.experiments()) == []
    with pytest.raises(InvalidError, match="apiVersion"):
        world.service.preview("kind: Experiment", source="x.yaml")


def test_counts_change_within_their_rules_and_a_stop_is_taken_back(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml")

    edited = world.service.edit(NS, "demo", max_trial_count=7, max_failed_trial_count=2)
    assert (edited.encode()["spec"]["maxTrialCount"], edited.encode()["spec"]["maxFailedTrialCount"]) == (7, 2)
    stopped = world.service.edit(NS, "demo", stopped=True)
    assert stopped.encode()["metadata"]["annotations"]["katib.kubeflow.org/stopped"] == "true"
    resumed = world.service.edit(NS, "demo", stopped=False)
    assert "katib.kubeflow.org/stopped" not in (resumed.encode()["metadata"].get("annotations") or {})
    with pytest.raises(InvalidError):
        world.service.edit(NS, "demo", parallel_trial_count=0)
    with pytest.raises(NotFoundError):
        world.service.edit(NS, "ghost", max_trial_count=7)


def test_marks_are_kept_and_taken_away_one_by_one(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml")

    marks: Any = {"tags": ("baseline", "v2", "baseline"), "notes": "try\na larger model"}
    world.service.edit(NS, "demo", **marks)
    assert marks_of(world.service.edit(NS, "demo", notes="").metadata.annotations) == Marks(("baseline", "v2"), "")
    assert world.service.submit(document("demo"), source="demo.yaml").outcome == "unchanged"
    assert marks_of(world.service.get(Experiment, NS, "demo").metadata.annotations).tags == ("baseline", "v2")
    with pytest.raises(InvalidError, match="without a comma"):
        world.service.edit(NS, "demo", tags=("a,b",))


def test_a_trial_is_marked_as_an_experiment_is(finished: TuningService) -> None:
    trial = finished.trials(NS, "demo").items[0].name
    finished.edit_trial(NS, trial, tags=("best",), notes="keep\nit")

    assert marks_of(finished.edit_trial(NS, trial, notes="").metadata.annotations) == Marks(("best",), "")
    assert marks_of(finished.get(Trial, NS, trial).metadata.annotations).tags == ("best",)
    with pytest.raises(InvalidError, match="without a comma"):
        finished.edit_trial(NS, trial, tags=("a,b",))
    with pytest.raises(NotFoundError):
        finished.edit_trial(NS, "ghost", notes="x")


def test_only_a_trial_that_is_under_way_can_be_suspended(ended: TuningService) -> None:
    trial = ended.trials(NS, "demo").items[0].name
    for paused in (True, False):
        with pytest.raises(InvalidError, match="it has ended"):
            ended.edit_trial(NS, trial, paused=paused)
        with pytest.raises(NotFoundError):
            ended.edit_trial(NS, "ghost", paused=paused)


def test_an_experiment_is_paused_and_resumed_with_its_trials(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml")
    paused = world.service.pause(NS, "demo", paused=True)
    resumed = world.service.pause(NS, "demo", paused=False)

    assert paused.experiment.metadata.annotations[STOPPED_ANNOTATION] == STOPPED
    assert STOPPED_ANNOTATION not in resumed.experiment.metadata.annotations
    assert (paused.trials, resumed.trials) == ((), ())
    with pytest.raises(NotFoundError):
        world.service.pause(NS, "ghost", paused=True)
    world.finish("demo")
    with pytest.raises(InvalidError) as caught:
        world.service.pause(NS, "demo", paused=True)
    assert caught.value.errors[0].origin == "stop-ended"


def test_submitting_a_stopped_experiment_again_lets_it_go_on(world: World) -> None:
    world.service.submit(document("demo"), source="demo.yaml")
    world.service.edit(NS, "demo", stopped=True)

    assert world.service.submit(document("demo"), source="demo.yaml").outcome == "resumed"
    metadata = world.service.get(Experiment, NS, "demo").encode()["metadata"]
    assert "katib.kubeflow.org/stopped" not in (metadata.get("annotations") or {})


def test_a_deleted_experiment_is_gone_with_its_trials(finished: TuningService) -> None:
    trial = finished.trials(NS, "demo").items[0].name
    finished.delete(NS, "demo")

    with pytest.raises(NotFoundError):
        finished.get(Experiment, NS, "demo")
    with pytest.raises(NotFoundError):
        finished.get(Trial, NS, trial)


def test_algorithms_keep_what_is_known_of_their_settings(world: World) -> None:
    algorithms = {info.name: info for info in world.service.algorithms()}

    assert algorithms["random"].settings
    assert not algorithms["random"].early_stopping
    assert algorithms["medianstop"].early_stopping


def test_a_forgotten_cursor_is_expired_where_it_is_forgotten() -> None:
    service = MemoryTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.oldest_cursor = 5

    with pytest.raises(ExpiredError):
        next(service.changes(NS, "demo", since="1"))


def test_training_runtimes_are_stored_by_themselves(world: World) -> None:
    if world.is_cluster:
        pytest.skip("the kinds are those of an operator")
    documents = [_runtime("ClusterTrainingRuntime", "shared"), _runtime("TrainingRuntime", "mine", namespace="team")]
    text = yaml.safe_dump_all(documents)

    first = world.service.store_runtimes(text, source="runtimes.yaml")
    again = world.service.store_runtimes(text, source="runtimes.yaml")
    documents[1]["spec"]["mlPolicy"]["numNodes"] = 3
    changed = world.service.store_runtimes(yaml.safe_dump_all(documents), source="runtimes.yaml")

    assert [stored.outcome for stored in (*first, *again, *changed)] == [
        *("created", "created"),
        *("unchanged", "unchanged"),
        *("unchanged", "updated"),
    ]
    assert [stored.runtime["metadata"].get("namespace", "") for stored in changed] == ["", "team"]
    assert changed[1].runtime["spec"]["mlPolicy"]["numNodes"] == 3
    assert world.service.validate(text, source="runtimes.yaml") == ()


def test_what_is_wrong_with_runtimes_comes_at_once_with_its_document(world: World) -> None:
    documents = [_runtime("TrainingRuntime", "a"), _runtime("TrainingRuntime", "a"), _runtime("TrainingRuntime", "B")]

    with pytest.raises(InvalidError) as refused:
        world.service.store_runtimes(yaml.safe_dump_all(documents), source="runtimes.yaml")

    assert [(e.path.partition(": ")[2], e.origin) for e in refused.value.errors] == [
        ("metadata.name", "companion-duplicate"),
        ("metadata.name", "name-format"),
    ]


def _runtime(kind: str, name: str, **metadata: str) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "node", "command": ["train"]}]}}
    job = {"name": "node", "template": {"spec": {"template": pod}}}
    spec = {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": [job]}}}
    header = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": {"name": name, **metadata}}
    return {**header, "spec": spec}
