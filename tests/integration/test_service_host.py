"""Service processes of all tempers, started for real and talked to over gRPC."""

from __future__ import annotations

import os
import re
import signal
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from katib.engine.algorithm_services.catalog import Catalog
from katib.engine.algorithm_services.config import ServicesConfig
from katib.engine.algorithm_services.plan import ServiceId, ServicePlan, own_plan
from katib.engine.algorithm_services.readiness import ServiceTiming
from katib.errors import Backoff, InvalidError, TerminalError, UnavailableError
from katib.model.configuration import read_configuration
from katib.model.types import Experiment
from katib.places.machine.processes.client import Processes
from katib.places.machine.services.host import ServiceHost
from katib.wire.rpc.clients import ServiceClient
from tests.support.experiments import an_experiment
from tests.support.golden import Golden
from tests.support.services import ScriptedSuggestion, serving, some_suggestions
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "tests" / "support" / "service_process.py"
QUICK = ServiceTiming(call=60, start=60, stop=0.3, idle=60, restart=Backoff(0.01, 0.05))


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes()
    started.start()
    yield started
    started.stop()


class Hosts:
    """Opens hosts for a test and closes them after it."""

    def __init__(self, processes: Processes, directory: Path) -> None:
        self.logs = directory / "logs"
        self._processes = processes
        self._opened: list[ServiceHost] = []

    def open(self, *plans: ServicePlan, timing: ServiceTiming = QUICK, **options: Any) -> ServiceHost:
        host = ServiceHost(
            self._processes, self.logs, plans={plan.id: plan for plan in plans}, timing=timing, **options
        )
        self._opened.append(host)
        return host

    def configured(self, text: str, directory: Path = ROOT) -> ServiceHost:
        """Open a host whose services stand in a configuration."""
        config = read_configuration(ServicesConfig, text, "katib.yaml")
        return self.open(*config.plans(directory).values(), catalog=Catalog(config.infos()))

    def close(self) -> None:
        for host in self._opened:
            host.close()


@pytest.fixture
def hosts(processes: Processes, tmp_path: Path) -> Iterator[Hosts]:
    opened = Hosts(processes, tmp_path)
    yield opened
    opened.close()


def a_plan(mode: str = "good", *, name: str = "fake", environment: Mapping[str, str] | None = None) -> ServicePlan:
    return ServicePlan(
        ServiceId(name),
        command=("{python}", str(SERVICE), "{address}", mode),
        environment={"PYTHONPATH": str(ROOT), **(environment or {})},
        health_service="manager.v1beta1.Suggestion",
    )


def an_object(algorithm: str = "fake", *, name: str = "demo", **spec: Any) -> Experiment:
    return Experiment.decode(an_experiment(name=name, algorithm={"algorithmName": algorithm}, **spec))


def changes_of(host: ServiceHost) -> list[tuple[str, str]]:
    """Return the list to which the experiments are added whose services change."""
    changes: list[tuple[str, str]] = []
    host.on_change(lambda namespace, name: changes.append((namespace, name)))
    return changes


def ready(host: ServiceHost, experiment: Experiment) -> ServiceClient:
    client: ServiceClient = eventually(lambda: host.service_for(experiment), "a ready service")
    return client


def ask(client: ServiceClient, experiment: Experiment, count: int = 1) -> Any:
    return client.get_suggestions(experiment, (), current_request=count, total_request=count)


def pid_behind(client: ServiceClient, experiment: Experiment) -> int:
    return int(ask(client, experiment).result(60).assignments[0].parameter_assignments[0].value)


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def failure(host: ServiceHost, experiment: Experiment) -> str:
    def try_once() -> str:
        try:
            assert host.service_for(experiment) is None
        except TerminalError as error:
            return str(error)
        return ""

    text: str = eventually(try_once, "a failed service")
    return text


# --- life -------------------------------------------------------------------------------------------------------------


def test_a_service_starts_on_demand_and_says_when_it_is_ready(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan()), an_object()
    changes = changes_of(host)

    at_first = host.service_for(experiment)
    eventually(lambda: changes)
    then = host.service_for(experiment)

    assert at_first is None
    assert changes == [("default", "demo")]
    assert then is not None
    assert len(ask(then, experiment, 3).result(60).assignments) == 3


def test_experiments_share_the_process_of_an_algorithm(hosts: Hosts) -> None:
    host = hosts.open(a_plan(), a_plan(name="other"))
    one, two, three = an_object(name="one"), an_object(name="two"), an_object("other", name="three")
    for experiment in (one, two, three):
        host.service_for(experiment)

    pids = [pid_behind(ready(host, experiment), experiment) for experiment in (one, two, three)]

    assert pids[0] == pids[1] != pids[2]


def test_a_client_stays_the_same_as_long_as_its_service_lives(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan()), an_object()

    assert ready(host, experiment) is host.service_for(experiment)


def test_a_prewarmed_service_is_the_one_that_is_used(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan()), an_object()
    host.prewarm("fake")
    supervisor = host._supervisors[ServiceId("fake")]

    ready(host, experiment)

    assert host._supervisors[ServiceId("fake")] is supervisor


def test_an_idle_service_stops_and_comes_back_when_needed(hosts: Hosts) -> None:
    timing = ServiceTiming(start=60, stop=0.3, idle=0.05)
    host, experiment = hosts.open(a_plan(), timing=timing), an_object()
    first = pid_behind(ready(host, experiment), experiment)

    host.release(experiment)
    host.release(experiment)
    eventually(lambda: ended(first), "the idle end")

    assert first != pid_behind(ready(host, experiment), experiment)


def test_a_service_is_not_idle_while_one_of_its_experiments_goes_on(hosts: Hosts) -> None:
    host = hosts.open(a_plan(), timing=ServiceTiming(start=60, stop=0.3, idle=0.0))
    one, two = an_object(name="one"), an_object(name="two")
    host.service_for(one)
    host.service_for(two)
    pid = pid_behind(ready(host, one), one)

    host.release(one)

    assert pid_behind(ready(host, two), two) == pid


def test_closing_ends_every_process_and_removes_the_sockets(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan("stubborn")), an_object()
    pid = pid_behind(ready(host, experiment), experiment)
    sockets = host._sockets._path

    host.close()

    assert ended(pid)
    assert not sockets.exists()
    with pytest.raises(TerminalError, match="closed"):
        host.service_for(experiment)


def test_nobody_waits_for_a_service_that_does_not_come_up(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan("deaf")), an_object()

    assert [host.service_for(experiment) for _ in range(3)] == [None, None, None]
    assert host.states_of("default", "demo")[0].state == "starting"


def test_a_host_may_be_closed_while_services_start(hosts: Hosts) -> None:
    host = hosts.open(a_plan("deaf"))
    host.prewarm("fake")

    began = time.monotonic()
    host.close()

    assert time.monotonic() - began < 30


def test_sockets_lie_in_a_private_directory_with_a_short_path(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 40)))
    monkeypatch.setattr("tempfile.tempdir", None)
    host = ServiceHost(processes, tmp_path)

    assert stat.S_IMODE(host._sockets._path.stat().st_mode) == 0o700
    assert len(str(host._sockets.new_path())) < 104
    host.close()


def test_socket_directories_of_dead_owners_are_removed(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    abandoned, alive, foreign = (tmp_path / name for name in ("katib-99999999-x", f"katib-{os.getpid()}-x", "katib-x"))
    for directory in (abandoned, alive, foreign):
        directory.mkdir()

    ServiceHost(processes, tmp_path).close()

    assert [d.exists() for d in (abandoned, alive, foreign)] == [False, True, True]


def test_an_experiment_can_be_told_how_its_services_are_doing(hosts: Hosts) -> None:
    with serving(ScriptedSuggestion()) as address:
        host = hosts.open(a_plan(), ServicePlan(ServiceId("elsewhere"), address=address))
        one, two = an_object(name="one"), an_object("elsewhere", name="two")
        host.service_for(one)
        host.service_for(two)
        host.prewarm("elsewhere")
        before = host.states_of("default", "one")
        ready(host, one)

        assert [state.state for state in before] == ["starting"]
        assert [state.state for state in host.states_of("default", "one")] == ["ready"]
        assert [state.address for state in host.states_of("default", "two")] == [address]
        assert host.states_of("default", "three") == ()


# --- crashes ----------------------------------------------------------------------------------------------------------


def test_a_service_killed_in_mid_request_comes_back(hosts: Hosts, tmp_path: Path) -> None:
    plan = a_plan("crash-once", environment={"MARK": str(tmp_path / "mark")})
    host, experiment = hosts.open(plan), an_object()

    lost = ask(ready(host, experiment), experiment).exception(60)
    answer = eventually(lambda: _answer(host, experiment))

    assert isinstance(lost, UnavailableError)
    assert 'suggestion service "fake"' in str(lost)
    assert len(answer.assignments) == 1


def _answer(host: ServiceHost, experiment: Experiment) -> Any:
    client = host.service_for(experiment)
    if client is None:
        return None
    future = ask(client, experiment)
    return None if future.exception(60) else future.result()


def test_a_service_killed_while_many_wait_comes_back_for_all(hosts: Hosts) -> None:
    host = hosts.open(a_plan())
    experiments = [an_object(name=f"e{i}") for i in range(8)]
    for experiment in experiments:
        host.service_for(experiment)
    pid = pid_behind(ready(host, experiments[0]), experiments[0])

    with ThreadPoolExecutor(8) as threads:
        os.kill(pid, signal.SIGKILL)
        answers = list(threads.map(lambda e: eventually(lambda: _answer(host, e)), experiments))

    pids = {answer.assignments[0].parameter_assignments[0].value for answer in answers}
    assert len(pids) == 1
    assert pids != {str(pid)}


def test_a_service_that_crashes_in_every_request_fails_with_how_it_died(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan("abort")), an_object()

    def crash_again() -> str:
        try:
            _answer(host, experiment)
        except TerminalError as error:
            return str(error)
        return ""

    text = eventually(crash_again)

    assert text.startswith('suggestion service "fake" was killed by SIGABRT ')
    state = host.states_of("default", "demo")[0]
    assert (state.service, state.state, state.attempts) == (ServiceId("fake"), "failing", 3)
    assert state.last_error == text


@pytest.mark.parametrize(
    ("mode", "ending"),
    [
        pytest.param("killed", "was killed by SIGKILL", id="before it answers"),
        pytest.param("killed-in-shell", "exited with 137", id="behind a shell or a container"),
        pytest.param("crash", "was killed by SIGKILL", id="in every request"),
    ],
)
def test_a_service_that_is_killed_again_and_again_is_started_until_it_answers(
    hosts: Hosts, tmp_path: Path, mode: str, ending: str
) -> None:
    cure = tmp_path / "cure"
    host, experiment = hosts.open(a_plan(mode, environment={"CURE": str(cure)})), an_object()
    changes = changes_of(host)
    told = f'suggestion service "fake" {ending}'

    def has_lasted() -> bool:
        assert _answer(host, experiment) is None
        return host.states_of("default", "demo")[0].attempts > 3 * QUICK.max_failures

    eventually(has_lasted, "many attempts")
    eventually(lambda: host.waiting_for(experiment) == told, "what it waits for")
    state = host.states_of("default", "demo")[0]
    others = host.waiting_for(an_object(name="other"))
    cure.touch()
    answer = eventually(lambda: _answer(host, experiment), "an answer")

    assert changes
    assert (state.state, state.last_error.startswith(told)) == ("failing", True)
    assert others == ""
    assert len(answer.assignments) == 1
    assert host.waiting_for(experiment) == ""


def test_a_service_that_cannot_be_started_for_now_is_started_later(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan()), an_object()
    hosts.logs.write_text("in the way of the directory of its log")
    host.service_for(experiment)
    eventually(lambda: "cannot be started: " in host.waiting_for(experiment), "what it waits for")
    hosts.logs.unlink()

    assert pid_behind(ready(host, experiment), experiment)


def test_a_service_without_memory_is_started_again_until_there_is_some(hosts: Hosts, tmp_path: Path) -> None:
    """The limit lets Python start, and no library of numbers; how far it comes depends on the machine."""
    limit, own = tmp_path / "limit", own_plan(ServiceId("tpe"))
    limit.write_text("600000")
    command = ("sh", "-c", f'ulimit -v $(cat {limit}); exec "$@"', "sh", *own.command)
    host, experiment = hosts.open(replace(own, command=command)), an_object("tpe")

    def validated() -> BaseException | None:
        client = host.service_for(experiment)  # raises once the service is given up
        return UnavailableError("it starts") if client is None else client.validate(experiment).exception(60)

    def waits() -> bool:
        assert isinstance(validated(), UnavailableError)
        return host.states_of("default", "demo")[0].attempts > 2 * QUICK.max_failures

    eventually(waits, "many attempts")
    eventually(lambda: re.search("too little memory|no more processes or threads", host.waiting_for(experiment)))
    limit.write_text("unlimited")

    eventually(lambda: validated() is None, "an experiment that is valid")


def test_answers_in_between_keep_a_service_that_is_killed_often(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan()), an_object()
    pids = set()
    for _ in range(QUICK.max_failures + 2):
        pid = int(eventually(lambda: _answer(host, experiment)).assignments[0].parameter_assignments[0].value)
        pids.add(pid)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: ended(pid))

    assert len(pids) == QUICK.max_failures + 2


def test_a_service_that_exits_at_once_fails_with_its_last_words(hosts: Hosts, golden: Golden) -> None:
    host, experiment = hosts.open(a_plan("exit")), an_object()
    changes = changes_of(host)

    text = failure(host, experiment)

    golden(text)
    assert changes == [("default", "demo")]
    assert failure(host, experiment) == text


def test_a_service_that_leaves_a_directory_where_its_socket_was_to_be_fails_instead_of_starting_for_ever(
    hosts: Hosts,
) -> None:
    script = "import os, sys; os.mkdir(sys.argv[1].removeprefix('unix:'))"
    host = hosts.open(ServicePlan(ServiceId("fake"), command=("{python}", "-c", script, "{address}")))

    with pytest.raises(TerminalError, match='"fake"'):
        ready(host, an_object())


def test_an_experiment_that_comes_later_gets_a_new_attempt(hosts: Hosts) -> None:
    host = hosts.open(a_plan("exit"))
    failure(host, an_object(name="early"))

    assert host.service_for(an_object(name="late")) is None


def test_a_command_that_does_not_exist_fails_at_once(hosts: Hosts) -> None:
    plan = ServicePlan(ServiceId("fake"), command=("katib-no-such-program", "{address}"))

    text = failure(hosts.open(plan), an_object())

    assert text.startswith('suggestion service "fake" ')
    assert "katib-no-such-program" in text


def test_a_process_that_never_listens_is_ended_and_named(hosts: Hosts) -> None:
    timing = ServiceTiming(start=0.1, stop=0.1, restart=Backoff(0.01, 0.05))

    assert "within 0.1 s (3 times" in failure(hosts.open(a_plan("deaf"), timing=timing), an_object())


def test_a_missing_package_is_answered_with_the_command_that_installs_it(hosts: Hosts) -> None:
    hide = "import sys; sys.modules['skopt'] = None; from suggestion_services.server import main; sys.exit(main())"
    plan = ServicePlan(
        ServiceId("bayesianoptimization"),
        command=("{python}", "-c", hide, "--algorithm", "bayesianoptimization", "--address", "{address}"),
        environment={"PYTHONPATH": str(ROOT)},
    )

    assert "pip install scikit-optimize" in failure(hosts.open(plan), an_object("bayesianoptimization"))


# --- slow ones --------------------------------------------------------------------------------------------------------


def test_a_service_that_hangs_is_given_up_and_delays_nobody_else(hosts: Hosts) -> None:
    host = hosts.open(replace(a_plan("hang", name="slow"), call_seconds=0.5), a_plan(name="quick"))
    slow, quick = an_object("slow", name="a"), an_object("quick", name="b")
    host.service_for(slow)
    client = ready(host, quick)

    pending = ask(ready(host, slow), slow)
    answer = ask(client, quick).result(60)
    error = pending.exception(60)

    assert len(answer.assignments) == 1
    assert '"slow" did not answer' in str(error)


def test_how_long_a_question_may_take_is_configured_for_each_service(hosts: Hosts, tmp_path: Path) -> None:
    host = hosts.configured(
        f"algorithms: [{{name: slow, command: ['{{python}}', '{SERVICE}', '{{address}}', hang],"
        f" environment: {{PYTHONPATH: '{ROOT}'}}, callSeconds: 0.3}}]",
        tmp_path,
    )
    experiment = an_object("slow")

    error = ask(ready(host, experiment), experiment).exception(60)

    assert isinstance(error, UnavailableError)
    assert "0.3 s" in str(error)


def test_a_service_that_cannot_start_delays_nobody_else(hosts: Hosts) -> None:
    host = hosts.open(a_plan("deaf", name="slow"), a_plan(name="quick"))
    slow, quick = an_object("slow", name="a"), an_object("quick", name="b")
    host.service_for(slow)

    pid_behind(ready(host, quick), quick)

    assert host.service_for(slow) is None


def test_many_calls_at_once_are_all_answered(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan()), an_object()
    client = ready(host, experiment)

    futures = [ask(client, experiment, count) for count in range(1, 101)]

    assert [len(future.result(60).assignments) for future in futures] == list(range(1, 101))


def test_one_process_is_started_however_many_ask_at_once(hosts: Hosts) -> None:
    host = hosts.open(a_plan())
    experiments = [an_object(name=f"e{i}") for i in range(16)]
    barrier = threading.Barrier(len(experiments))

    def ask_at_once(experiment: Experiment) -> int:
        barrier.wait(60)
        return pid_behind(ready(host, experiment), experiment)

    with ThreadPoolExecutor(len(experiments)) as threads:
        assert len(set(threads.map(ask_at_once, experiments))) == 1


# --- plugged in -------------------------------------------------------------------------------------------------------


def test_a_service_without_health_is_ready_when_it_answers(hosts: Hosts) -> None:
    host, experiment = hosts.open(a_plan("no-health")), an_object()

    assert pid_behind(ready(host, experiment), experiment)


def test_a_service_is_plugged_in_by_command_with_a_port(hosts: Hosts, tmp_path: Path) -> None:
    host = hosts.configured(
        f"algorithms: [{{name: mine, command: ['{{python}}', '{SERVICE}', '127.0.0.1:{{port}}', good],"
        f" environment: {{PYTHONPATH: '{ROOT}'}}}}]",
        tmp_path,
    )
    experiment = an_object("mine")

    assert pid_behind(ready(host, experiment), experiment)


def test_a_service_is_plugged_in_by_address(hosts: Hosts) -> None:
    service = ScriptedSuggestion(lambda *_: some_suggestions(1))
    with serving(service) as address:
        host = hosts.configured(f'algorithms: [{{name: mine, address: "{address}"}}]')
        experiment = an_object("mine")
        client = host.service_for(experiment)
        assert client is not None
        answer = ask(client, experiment).result(60)
        host.release(experiment)

    assert len(answer.assignments) == 1
    assert "cannot be reached" in str(ask(client, experiment).exception(60))


def test_an_algorithm_that_nobody_offers_is_refused(hosts: Hosts) -> None:
    host = hosts.open(catalog=Catalog())

    with pytest.raises(TerminalError) as caught:
        host.service_for(an_object("sorcery"))

    assert '"sorcery"' in str(caught.value)


# --- our own ----------------------------------------------------------------------------------------------------------


def test_our_own_algorithms_need_no_configuration(hosts: Hosts) -> None:
    host = hosts.open(catalog=Catalog(), db_manager_address=lambda _plan: "127.0.0.1:1")
    experiment = an_object("random", earlyStopping={"algorithmName": "medianstop"})
    client = ready(host, experiment)

    client.validate(experiment).result(60)
    answer = ask(client, experiment, 2).result(60)
    rules = client.get_early_stopping_rules(experiment, ()).result(60)

    assert len(answer.assignments) == 2
    assert rules == ()


def test_a_refusal_of_our_own_services_names_field_and_remedy(hosts: Hosts) -> None:
    host, experiment = hosts.open(catalog=Catalog()), an_object("grid")

    with pytest.raises(InvalidError) as caught:
        ready(host, experiment).validate(experiment).result(60)

    assert [(e.path, e.remedy) for e in caught.value.errors] == [("spec.parameters", "give feasibleSpace.step")]
