"""Services in a cluster: created once, ready when they answer, failed with the cause, gone when no longer needed."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from katib.engine.algorithm_services.plan import ServiceId
from katib.engine.controllers.kinds import EXPERIMENT, SUGGESTION
from katib.engine.runtime.objects import Key
from katib.errors import FieldError, ForbiddenError, InvalidError, UnavailableError
from katib.model.configuration import read_configuration
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.services.plan import DEPLOYMENT, SERVICE, SERVICE_ACCOUNT
from tests.support.cluster_services import CONFIG, EARLY, NAMESPACE, QUICK, Health, World, listening, owner_of
from tests.support.faulty_store import Call, FaultyStore
from tests.support.golden import Golden
from tests.support.services import ScriptedEarlyStopping, ScriptedSuggestion
from tests.support.waiting import eventually, never

quick = partial(World, timing=QUICK)


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made


@pytest.fixture
def quick_world() -> Iterator[World]:
    with quick() as made:
        yield made


def test_what_is_missing_is_created_once_and_owned_by_the_suggestion(world: World) -> None:
    experiment = world.submit()
    assert [world.services.service_for(experiment) for _ in range(3)] == [None] * 3

    assert world.objects() == {"Deployment demo-tpe", "Service demo-tpe"}
    assert owner_of(world.deployment())["uid"] == world.store.get(SUGGESTION, Key(NAMESPACE, "demo"))["metadata"]["uid"]


def test_early_stopping_gets_a_container_and_the_rights_it_needs(world: World) -> None:
    world.services.service_for(world.submit(earlyStopping=EARLY))

    assert world.objects() == {
        f"{kind} demo-tpe" for kind in ("Deployment", "Service", "ServiceAccount", "Role", "RoleBinding")
    }


def test_a_service_is_ready_when_available_and_answering(world: World) -> None:
    experiment = world.start()
    host = world.expose()
    health, suggestion = Health(), ScriptedSuggestion()
    with listening(host, health=health, suggestion=suggestion):
        assert world.services.service_for(experiment) is None
        assert health.asked == []

        world.make_available()
        client = world.ready(experiment)

        assert health.asked == ["manager.v1beta1.Suggestion"]
        assert world.told[-1] == (NAMESPACE, "demo")
        reply = client.get_suggestions(experiment, (), current_request=2, total_request=2).result(60)
        assert len(reply.assignments) == 2
        assert world.services.service_for(experiment) is client
        (state,) = world.services.states_of(NAMESPACE, "demo")
        assert (state.service, state.state, state.address) == (ServiceId("tpe"), "ready", "demo-tpe.team:6789")


def test_a_service_without_health_is_ready_when_it_answers(world: World) -> None:
    experiment = world.start()
    with world.serving(health=None, suggestion=ScriptedSuggestion()):
        assert world.ready(experiment)


def test_both_containers_have_to_answer() -> None:
    with World() as world:
        experiment = world.start(earlyStopping=EARLY)
        host = world.expose()
        world.make_available()
        stopping = ScriptedEarlyStopping()
        with listening(host, health=Health()):
            world.wait_for_words('early stopping service "medianstop" does not answer at')
            assert world.services.service_for(experiment) is None
            with listening(host, 6788, early_stopping=stopping):
                assert world.ready(experiment).get_early_stopping_rules(experiment, ()).result(60) == ()

    assert stopping.requests[0].db_manager_address == "katib-db-manager.kubeflow:6789"


def test_a_service_that_does_not_serve_yet_is_waited_for(world: World) -> None:
    experiment = world.start()
    health = Health()
    health.serving = False
    with world.serving(health=health):
        world.wait_for_words("it says that it does not serve yet")
        assert world.services.service_for(experiment) is None
        health.serving = True
        assert world.ready(experiment)


def test_a_pod_that_goes_is_no_service_until_another_answers(world: World) -> None:
    experiment = world.start()
    with world.serving() as host:
        world.ready(experiment)
    world.told.clear()
    world.make_available(available=False)

    eventually(lambda: world.told)
    assert world.services.service_for(experiment) is None

    world.make_available()
    with listening(host, health=Health()):
        assert world.ready(experiment)


def test_how_long_a_question_may_take_is_configured_for_each_service(golden: Golden) -> None:
    hangs = threading.Event()

    def hang(*_: Any) -> None:
        hangs.wait(60)

    config = CONFIG.replace("{algorithmName: tpe,", "{algorithmName: tpe, callSeconds: 1,")
    with World(config=config) as world:
        experiment = world.start()
        with world.serving(suggestion=ScriptedSuggestion(hang)):
            asked = world.ready(experiment).get_suggestions(experiment, (), current_request=1, total_request=1)
            error = asked.exception(60)
            hangs.set()

    assert isinstance(error, UnavailableError)
    golden(error)


def test_a_restarted_controller_finds_the_service_and_writes_nothing() -> None:
    with World() as world:
        experiment = world.start()
        host = world.expose()
        world.make_available()
    writes: list[Call] = []

    def watch(call: Call) -> None:
        if call.write_number and call.before:
            writes.append(call)

    with (
        listening(host, health=Health()),
        World(world.store, through=lambda store: FaultyStore(store, watch)) as restarted,
    ):
        assert restarted.ready(experiment)

    assert writes == []


def test_a_service_run_elsewhere_needs_no_objects(world: World) -> None:
    experiment = world.submit(algorithm="far")
    assert world.ready(experiment)

    assert world.objects() == set()
    (state,) = world.services.states_of(NAMESPACE, "demo")
    assert (state.state, state.address) == ("ready", "127.0.0.1:1")
    world.services.release(experiment)


def test_an_algorithm_whose_entry_was_taken_away_is_waited_for(world: World, golden: Golden) -> None:
    experiment = world.submit(algorithm="grid")
    with pytest.raises(UnavailableError) as caught:
        world.services.service_for(experiment)
    golden(caught.value)

    world.config = read_configuration(
        KatibConfig, CONFIG.replace("algorithmName: far", "algorithmName: grid"), "katib-config.yaml"
    )

    assert world.ready(experiment)


NO_IMAGE = {
    "containerStatuses": [{"name": "suggestion", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]
}
NO_ROOM = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]
}


def killed(code: int, reason: str) -> dict[str, Any]:
    """Return a container that the kernel has killed some times; the same words each time."""
    ended = {"terminated": {"exitCode": code, "reason": reason}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    return {"containerStatuses": [{"name": "suggestion", "restartCount": 3, "state": waiting, "lastState": ended}]}


BROKEN: list[Any] = [
    pytest.param(
        {
            "containerStatuses": [
                {"name": "suggestion", "state": {"waiting": {"reason": "InvalidImageName", "message": "a b"}}}
            ]
        },
        "container suggestion: InvalidImageName: a b",
        id="no-image-name",
    ),
    pytest.param(
        {
            "containerStatuses": [
                {
                    "name": "suggestion",
                    "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "message": "usage: x\nno y\n"}},
                }
            ]
        },
        "container suggestion: ended (exit code 2, 3 restarts): usage: x | no y",
        id="crash-loop",
    ),
]


@pytest.mark.parametrize(("status", "words"), BROKEN)
def test_a_service_that_cannot_start_fails_with_the_words_of_its_pod(status: dict[str, Any], words: str) -> None:
    with quick() as world:
        experiment = world.start()
        world.add_pod(status)
        world.wait_for_words(words)
        assert world.services.states_of(NAMESPACE, "demo")[0].state == "failing"
        failure = world.failure(experiment)

    assert ": pod demo-tpe-" in failure
    assert failure.endswith(words)


def test_a_program_that_starts_again_and_again_fails_with_its_own_words_while_it_refuses_connections() -> None:
    with World(timing=replace(QUICK, patience=1.0)) as world:
        experiment = world.start()
        world.expose()
        world.add_pod(BROKEN[1].values[0])
        world.wait_for_words("usage: x")
        world.make_available()  # as when there is no readiness probe
        assert re.search("usage: x", world.failure(experiment))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(NO_IMAGE, "container suggestion: ErrImagePull: no", id="image-missing"),
        pytest.param(NO_ROOM, "Unschedulable: 0/1 nodes", id="unschedulable"),
        pytest.param({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "Evicted: disk", id="evicted"),
        pytest.param(killed(137, "OOMKilled"), "container suggestion: ended (OOMKilled, exit code 137)", id="memory"),
        pytest.param(killed(137, "Error"), "container suggestion: ended (exit code 137)", id="killed"),
    ],
)
def test_the_cluster_s_own_trouble_is_told_and_waited_out(
    quick_world: World, status: dict[str, Any], words: str
) -> None:
    """Much longer than the patience: the service comes up without a fix."""
    experiment = quick_world.start()
    quick_world.add_pod(status)
    quick_world.wait_for_words(words)
    assert quick_world.services.states_of(NAMESPACE, "demo")[0].state == "failing"
    assert quick_world.services.waiting_for(experiment).endswith(words)
    eventually(lambda: quick_world.told)
    quick_world.told.clear()
    never(lambda: quick_world.services.service_for(experiment))
    assert not quick_world.told  # the same words are no news

    with quick_world.serving():
        assert quick_world.ready(experiment)
    assert quick_world.services.waiting_for(experiment) == ""


def test_a_running_service_that_loses_its_node_is_waited_for(quick_world: World) -> None:
    experiment = quick_world.start()
    host = quick_world.expose()
    with listening(host, health=Health()):
        quick_world.make_available()
        assert quick_world.ready(experiment)
        quick_world.add_pod(NO_ROOM)
        quick_world.make_available(available=False)
        quick_world.wait_for_words("0/1 nodes")
        never(lambda: quick_world.services.service_for(experiment))

        quick_world.make_available()
        assert quick_world.ready(experiment)


def test_a_service_that_never_answers_fails_with_the_address(quick_world: World) -> None:
    experiment = quick_world.start()
    host = quick_world.expose()
    quick_world.make_available()
    assert re.search(f"does not answer at {host}:6789: ", quick_world.failure(experiment))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ForbiddenError("create of roles is forbidden"), "Deployment team/demo-tpe cannot be created: create of roles"),
        (InvalidError([FieldError("spec", "bad", "fix it", "x")]), "Deployment team/demo-tpe is refused: spec: bad"),
    ],
    ids=["forbidden", "invalid"],
)
def test_an_object_that_cannot_be_created_fails_the_experiment_with_the_cause(error: Exception, expected: str) -> None:
    def refuse(call: Call) -> Exception | None:
        return error if call.verb == "create" and call.kind == DEPLOYMENT else None

    with quick(through=lambda store: FaultyStore(store, refuse)) as world:
        assert re.search(expected, world.failure(world.submit()))


def test_a_quota_for_the_objects_themselves_is_waited_for() -> None:
    is_used_up = True

    def refuse(call: Call) -> Exception | None:
        used_up = is_used_up and call.verb == "create" and call.kind == SERVICE
        return ForbiddenError('services "demo-tpe" is forbidden: exceeded quota: q') if used_up else None

    with quick(through=lambda store: FaultyStore(store, refuse)) as world:
        experiment = world.submit()
        never(lambda: world.services.service_for(experiment))
        eventually(lambda: "exceeded quota" in world.services.waiting_for(experiment))

        is_used_up = False
        world.await_object(experiment, "Service")


def test_a_right_given_later_lets_the_service_start() -> None:
    errors: list[Exception] = [ForbiddenError("no")] * 3

    def refuse(call: Call) -> Exception | None:
        return errors.pop() if errors and call.verb == "create" and call.kind == DEPLOYMENT else None

    with quick(through=lambda store: FaultyStore(store, refuse)) as world:
        experiment = world.start()
        eventually(lambda: world.told)  # its experiment is asked to try again
        world.await_object(experiment, "Deployment")


def test_an_outage_of_the_api_server_is_not_held_against_the_service() -> None:
    away = True

    def fail(call: Call) -> Exception | None:
        return UnavailableError("away") if away and call.verb == "create" and call.before else None

    with quick(through=lambda store: FaultyStore(store, fail)) as world:
        experiment = world.submit()
        with pytest.raises(UnavailableError):
            world.services.service_for(experiment)
        eventually(lambda: len(world.told) > 20)  # much longer than the patience
        away = False
        assert world.services.service_for(experiment) is None
        assert world.objects() == {"Deployment demo-tpe", "Service demo-tpe"}


def test_a_deployment_removed_by_hand_comes_back(world: World) -> None:
    experiment = world.start()
    eventually(
        lambda: world.services._objects.are_there(Key(NAMESPACE, "demo-tpe"), owner_of(world.deployment())["uid"])
    )
    world.told.clear()
    world.store.delete(DEPLOYMENT, Key(NAMESPACE, "demo-tpe"))

    eventually(lambda: world.told)
    world.await_object(experiment, "Deployment")


def test_an_object_of_another_owner_is_in_the_way_and_stays(quick_world: World) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "demo-tpe", "namespace": NAMESPACE, "ownerReferences": [owner_of_another(quick_world)]},
        "spec": {},
    }
    quick_world.store.create(foreign)
    experiment = quick_world.submit()
    assert re.search("Service team/demo-tpe ", quick_world.failure(experiment))
    quick_world.services.release(experiment)

    assert "Service demo-tpe" in quick_world.objects()


def owner_of_another(world: World) -> dict[str, Any]:
    other = world.store.create({"apiVersion": "v1", "kind": "Other", "metadata": {"name": "o", "namespace": NAMESPACE}})
    return {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": other["metadata"]["uid"], "controller": True}


def test_a_deployment_that_katib_made_is_taken_over() -> None:
    """It lacks the label by which ours are watched, but belongs to the same Suggestion."""
    with World() as world:
        experiment = world.start()
    made = world.deployment()
    world.store.update({**made, "metadata": {**made["metadata"], "labels": {}}})
    with World(world.store) as restarted:
        restarted.services._objects.deployments._cache.remove(Key(NAMESPACE, "demo-tpe"))  # the selector hides it
        restarted.services.service_for(experiment)

        assert restarted.deployment()["metadata"]["labels"] == {"katib.kubeflow.org/suggestion": "demo"}


@pytest.mark.parametrize("restarted", [False, True], ids=["same-process", "after-a-restart"])
def test_release_removes_all_but_the_volume(*, restarted: bool) -> None:
    with World() as world:
        experiment = world.start(algorithm="pbt", resumePolicy="FromVolume", earlyStopping=EARLY)
        assert len(world.objects()) == 7
        if not restarted:
            world.services.release(experiment)
            world.services.release(experiment)
    if restarted:
        with World(world.store) as again:
            again.services.release(experiment)

    assert world.objects() == {"PersistentVolumeClaim demo-pbt", "PersistentVolume demo-pbt-team"}


def test_release_costs_nothing_when_nothing_is_there() -> None:
    calls: list[Call] = []

    def count(call: Call) -> None:
        if call.verb not in {"watch", "next", "list"}:
            calls.append(call)

    with World(through=lambda store: FaultyStore(store, count)) as world:
        experiment = world.submit()
        for _ in range(10):
            world.services.release(experiment)

    assert calls == []


def test_a_released_experiment_can_begin_again(world: World) -> None:
    experiment = world.start(resumePolicy="FromVolume")
    world.services.release(experiment)
    world.await_object(experiment, "Deployment")

    assert world.objects() == {"Deployment demo-tpe", "Service demo-tpe", "PersistentVolumeClaim demo-tpe"}


@pytest.mark.parametrize(("condition", "stays"), [("Running", True), ("Failed", False)])
def test_a_long_running_service_stays_unless_it_failed(world: World, condition: str, *, stays: bool) -> None:
    experiment = world.start(resumePolicy="LongRunning")
    suggestion = world.store.get(SUGGESTION, Key(NAMESPACE, "demo"))
    world.store.update({**suggestion, "status": {"conditions": [{"type": condition, "status": "True"}]}})
    world.services.release(experiment)

    assert ("Deployment demo-tpe" in world.objects()) is stays


def test_releasing_an_earlier_experiment_of_the_name_leaves_the_new_one_alone(world: World) -> None:
    old = world.submit()
    world.services.service_for(old)
    world.store.delete(SUGGESTION, Key(NAMESPACE, "demo"))
    world.store.delete(EXPERIMENT, Key(NAMESPACE, "demo"))
    eventually(lambda: not world.objects())
    new = world.submit()
    eventually(lambda: world.services.service_for(new) or len(world.objects()) == 2)
    world.services.release(old)

    assert world.objects() == {"Deployment demo-tpe", "Service demo-tpe"}


def test_a_release_that_is_not_allowed_is_no_failure() -> None:
    def refuse(call: Call) -> Exception | None:
        return ForbiddenError("no") if call.verb == "delete" else None

    with World(through=lambda store: FaultyStore(store, refuse)) as world:
        world.services.release(world.start())

        assert "Deployment demo-tpe" in world.objects()


def test_what_was_created_a_moment_ago_is_removed_even_if_the_cache_is_late() -> None:
    class Deaf(FaultyStore):
        """Its watches show nothing."""

    def block(call: Call) -> Exception | None:
        return UnavailableError("late") if call.verb in {"watch", "next"} else None

    with World(through=lambda store: Deaf(store, block)) as world:
        experiment = world.start(earlyStopping=EARLY)
        assert len(world.objects()) == 5
        world.services.release(experiment)

        assert world.objects() == set()


def test_a_service_account_of_the_configuration_needs_no_rights_of_ours(world: World) -> None:
    world.services.service_for(world.submit(algorithm="random", earlyStopping=EARLY))

    assert world.store.list(SERVICE_ACCOUNT).items == ()
    assert world.deployment("demo-random")["spec"]["template"]["spec"]["serviceAccountName"] == "own"
    (service,) = world.store.list(SERVICE).items
    assert [port["port"] for port in service["spec"]["ports"]] == [6789, 6788]
