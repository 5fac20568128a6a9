"""The client against real servers that answer as no service should."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import grpc
import pytest

from katib.engine.algorithm_services.readiness import ask_health
from katib.errors import FieldError, InternalError, InvalidError, KatibError, TerminalError, UnavailableError
from katib.model.types import AlgorithmSetting, Experiment, ParameterAssignment, Trial
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import early_stopping_pb2 as judging
from katib.wire.rpc.clients import ServiceClient
from katib.wire.rpc.connection import LazyChannel
from katib.wire.rpc.errors import status_of
from katib.wire.rpc.judging import JudgedServiceClient
from tests.support.experiments import an_experiment
from tests.support.networks import gateway_without_routes, held_up
from tests.support.services import ScriptedEarlyStopping, ScriptedJudge, ScriptedSuggestion, serving, some_suggestions
from tests.support.waiting import eventually, never

PEER = 'suggestion service "tpe"'
EXPERIMENT = Experiment.decode(an_experiment())
STOPPED = Experiment.decode(an_experiment(earlyStopping={"algorithmName": "medianstop"}))


@contextmanager
def a_client(
    suggestion: ScriptedSuggestion | None = None,
    early_stopping: ScriptedEarlyStopping | None = None,
    *,
    seconds: float = 60,
    **options: Any,
) -> Iterator[ServiceClient]:
    with ExitStack() as stack:
        address = stack.enter_context(serving(suggestion or ScriptedSuggestion(), early_stopping))
        connection = LazyChannel(address, peer=PEER, timeout_seconds=seconds)
        stack.callback(connection.close)
        if early_stopping is None:
            yield ServiceClient(connection, **options)
        else:
            yield JudgedServiceClient(connection, connection, **options)


def aborting(code: grpc.StatusCode, details: str = "why") -> Callable[[Any, grpc.ServicerContext], NoReturn]:
    return lambda _, context: context.abort(code, details)


def ask(client: ServiceClient, trials: tuple[Trial, ...] = (), count: int = 2) -> Any:
    return client.get_suggestions(EXPERIMENT, trials, current_request=count, total_request=count + len(trials)).result(
        60
    )


# --- suggestions ------------------------------------------------------------------------------------------------------


def test_a_reply_comes_back_as_objects() -> None:
    reply = pb.GetSuggestionsReply(
        parameter_assignments=[
            pb.GetSuggestionsReply.ParameterAssignments(
                assignments=[pb.ParameterAssignment(name="lr", value="0.5")], trial_name="mine", labels={"k": "v"}
            )
        ],
        algorithm=pb.AlgorithmSpec(algorithm_settings=[pb.AlgorithmSetting(name="rung", value="2")]),
    )
    with a_client(ScriptedSuggestion(lambda *_: reply)) as client:
        answer = ask(client, count=1)

    assert answer.assignments[0].parameter_assignments == (ParameterAssignment(name="lr", value="0.5"),)
    assert (answer.assignments[0].name, answer.assignments[0].labels) == ("mine", {"k": "v"})
    assert answer.algorithm_settings == (AlgorithmSetting(name="rung", value="2"),)
    assert not answer.exhausted


@pytest.mark.parametrize("reads_history", [True, False], ids=["with-history", "without-history"])
def test_trials_are_sent_only_to_services_that_read_them(reads_history: bool) -> None:
    service = ScriptedSuggestion()
    trial = Trial.decode({"metadata": {"name": "t", "uid": "u", "resourceVersion": "1"}})
    with a_client(service, reads_history=reads_history) as client:
        ask(client, (trial,), count=2)

    request = service.requests[0]
    assert [t.name for t in request.trials] == (["t"] if reads_history else [])
    assert (request.experiment.name, request.current_request_number, request.total_request_number) == ("demo", 2, 3)


def test_a_service_can_say_that_the_search_space_is_exhausted() -> None:
    def one_of_two(request: Any, context: grpc.ServicerContext) -> pb.GetSuggestionsReply:
        context.set_trailing_metadata((("katib-search-space", "exhausted"),))
        return some_suggestions(1)

    with a_client(ScriptedSuggestion(one_of_two)) as client:
        answer = ask(client)

    assert answer.exhausted
    assert len(answer.assignments) == 1


def test_an_empty_answer_means_exhausted_too() -> None:
    with a_client(ScriptedSuggestion(lambda *_: some_suggestions(0))) as client:
        assert ask(client).exhausted


@pytest.mark.parametrize("count", [1, 3], ids=["too-few", "too-many"])
def test_a_wrong_number_of_assignments_is_left_to_the_controller(count: int) -> None:
    with a_client(ScriptedSuggestion(lambda *_: some_suggestions(count))) as client:
        answer = ask(client)

    assert len(answer.assignments) == count
    assert not answer.exhausted


@pytest.mark.parametrize(
    ("code", "cls", "message"),
    [
        (grpc.StatusCode.UNKNOWN, InternalError, f"{PEER} failed: why"),
        (grpc.StatusCode.INTERNAL, InternalError, f"{PEER} failed: why"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, UnavailableError, f"{PEER}: why"),
        (grpc.StatusCode.UNIMPLEMENTED, TerminalError, f"{PEER}: why"),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidError, "request: why; change it as the service asks"),
    ],
    ids=lambda value: value.name if isinstance(value, grpc.StatusCode) else "",
)
def test_a_failed_request_says_what_to_do_next(code: grpc.StatusCode, cls: type[KatibError], message: str) -> None:
    with a_client(ScriptedSuggestion(aborting(code))) as client, pytest.raises(cls) as caught:
        ask(client)

    assert str(caught.value) == message


def test_an_exception_in_a_python_service_is_a_failure_of_it_with_its_text() -> None:
    def broken(*_: Any) -> NoReturn:
        raise ValueError("could not convert string to float")

    with a_client(ScriptedSuggestion(broken)) as client, pytest.raises(InternalError, match="string to float"):
        ask(client)


def test_a_service_that_hangs_is_given_up_at_the_deadline() -> None:
    released = threading.Event()

    def hang(*_: Any) -> pb.GetSuggestionsReply:
        released.wait(60)
        return some_suggestions(2)

    with a_client(ScriptedSuggestion(hang), seconds=0.2) as client:
        future = client.get_suggestions(EXPERIMENT, (), current_request=2, total_request=2)
        error = future.exception(60)
        released.set()

    assert isinstance(error, UnavailableError)
    assert str(error) == f"{PEER} did not answer within 0.2 s"


def test_a_service_that_is_slow_to_accept_a_connection_is_reached() -> None:
    """As one on a busy machine, which takes the connection long before it says a word."""
    awake = threading.Event()
    with serving(ScriptedSuggestion()) as address, held_up(address.removeprefix("unix:"), awake) as slow:
        connection = LazyChannel(slow, peer=PEER)
        future = ServiceClient(connection).get_suggestions(EXPERIMENT, (), current_request=2, total_request=2)
        never(future.done, seconds=1.0)
        awake.set()

        assert len(future.result(60).assignments) == 2
        connection.close()


def test_one_slow_service_does_not_delay_another() -> None:
    released = threading.Event()

    def hang(*_: Any) -> pb.GetSuggestionsReply:
        released.wait(60)
        return some_suggestions(2)

    with a_client(ScriptedSuggestion(hang)) as slow, a_client() as quick:
        pending = slow.get_suggestions(EXPERIMENT, (), current_request=2, total_request=2)
        answer = ask(quick)
        still_pending = not pending.done()
        released.set()
        pending.result(60)

    assert len(answer.assignments) == 2
    assert still_pending


def test_bytes_that_are_no_message_are_a_passing_failure() -> None:
    junk = grpc.method_handlers_generic_handler(
        "api.v1.beta1.Suggestion", {"GetSuggestions": grpc.unary_unary_rpc_method_handler(lambda *_: b"\xff\xff\xff")}
    )
    with serving(handlers=(junk,)) as address:
        connection = LazyChannel(address, peer=PEER)
        with pytest.raises(UnavailableError) as caught:
            ask(ServiceClient(connection))
        connection.close()

    assert str(caught.value) == f"{PEER} gave an unreadable answer: not the message expected"


def test_a_service_that_is_not_there_is_named_with_its_address() -> None:
    connection = LazyChannel("127.0.0.1:1", peer=PEER)
    with pytest.raises(
        UnavailableError, match=r'^suggestion service "tpe" at 127.0.0.1:1 cannot be reached: .*refused'
    ):
        ask(ServiceClient(connection))
    connection.close()


def test_a_gateway_in_the_place_of_a_service_is_no_answer_of_the_service() -> None:
    with gateway_without_routes() as address:
        connection = LazyChannel(address, peer=PEER)
        client = ServiceClient(connection)
        for call in (lambda: ask(client), lambda: client.validate(EXPERIMENT).result(60)):
            with pytest.raises(UnavailableError, match=r"does not speak gRPC \(.*404\)"):
                call()
        with pytest.raises(UnavailableError, match="does not speak gRPC"):
            ask_health(connection, "manager.v1beta1.Suggestion").result(60)
        connection.close()


def test_closing_a_connection_ends_calls_in_flight_and_refuses_new_ones() -> None:
    entered, released = threading.Event(), threading.Event()

    def hang(*_: Any) -> pb.GetSuggestionsReply:
        entered.set()
        released.wait(60)
        return some_suggestions(2)

    with serving(ScriptedSuggestion(hang)) as address:
        connection = LazyChannel(address, peer=PEER)
        client = ServiceClient(connection)
        future = client.get_suggestions(EXPERIMENT, (), current_request=2, total_request=2)
        entered.wait(60)
        connection.close()
        connection.close()
        in_flight = future.exception(60)
        released.set()
        afterwards = client.validate(EXPERIMENT).exception(60)

    assert isinstance(in_flight, UnavailableError)
    assert isinstance(afterwards, UnavailableError)


def test_answers_larger_than_the_usual_limit_arrive() -> None:
    reply = some_suggestions(1)
    reply.parameter_assignments[0].assignments[0].value = "x" * 5_000_000
    with a_client(ScriptedSuggestion(lambda *_: reply)) as client:
        assert len(ask(client, count=1).assignments[0].parameter_assignments[0].value) == 5_000_000


def test_calls_in_flight_need_no_thread_each() -> None:
    released = threading.Event()
    service = ScriptedSuggestion(lambda *_: released.wait(60) and some_suggestions(1))
    with a_client(service) as client:
        before = threading.active_count()
        futures = [client.get_suggestions(EXPERIMENT, (), current_request=1, total_request=1) for _ in range(50)]
        eventually(lambda: len(service.requests) >= 8)
        during = threading.active_count()
        released.set()
        answers = [future.result(60) for future in futures]

    assert len(answers) == 50
    assert during - before <= 2 + 8  # ours and gRPC's; the server's own
    assert not any(answer.exhausted for answer in answers)


# --- validation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [None, grpc.StatusCode.UNIMPLEMENTED], ids=["ok", "unimplemented"])
def test_an_experiment_is_valid_when_the_service_says_so_or_has_no_opinion(code: grpc.StatusCode | None) -> None:
    with a_client(ScriptedSuggestion(validate=aborting(code) if code else None)) as client:
        assert client.validate(EXPERIMENT).result(60) is None


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL], ids=lambda c: c.name
)
def test_a_refusal_carries_the_text_of_the_service(code: grpc.StatusCode) -> None:
    service = ScriptedSuggestion(validate=aborting(code, "unknown setting x for algorithm tpe"))
    with a_client(service) as client, pytest.raises(InvalidError) as caught:
        client.validate(EXPERIMENT).result(60)

    assert str(caught.value) == ("spec.algorithm: unknown setting x for algorithm tpe; change it as the service asks")


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED], ids=lambda c: c.name
)
def test_a_service_that_cannot_answer_now_has_not_refused(code: grpc.StatusCode) -> None:
    service = ScriptedSuggestion(validate=aborting(code))
    with a_client(service) as client, pytest.raises(UnavailableError):
        client.validate(EXPERIMENT).result(60)


@pytest.mark.parametrize("words", ["Exception calling application: can't start new thread", "MemoryError: "])
@pytest.mark.parametrize("code", [grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL], ids=lambda c: c.name)
def test_a_service_that_breaks_for_want_of_memory_has_neither_refused_nor_failed(
    code: grpc.StatusCode, words: str
) -> None:
    service = ScriptedSuggestion(aborting(code, words), validate=aborting(code, words))
    with a_client(service) as client:
        with pytest.raises(UnavailableError, match=words):
            client.validate(EXPERIMENT).result(60)
        with pytest.raises(UnavailableError, match=words):
            ask(client)


def test_field_errors_of_our_services_arrive_whole_from_both_services() -> None:
    setting = FieldError("spec.algorithm.algorithmSettings[0].value", "2 is out of range", "use 1", "setting-range")

    def refuse(_: Any, context: grpc.ServicerContext) -> None:
        status = status_of(InvalidError([setting]))
        context.set_trailing_metadata(status.metadata)
        context.abort(status.code, status.details)

    early_stopping = ScriptedEarlyStopping(
        validate=aborting(grpc.StatusCode.INVALID_ARGUMENT, "start_step must be >= 1")
    )
    with a_client(ScriptedSuggestion(validate=refuse), early_stopping) as client, pytest.raises(InvalidError) as caught:
        client.validate(STOPPED).result(60)

    assert caught.value.errors[0] == setting
    assert [e.path for e in caught.value.errors] == [setting.path, "spec.earlyStopping"]


# --- early stopping ---------------------------------------------------------------------------------------------------


def test_rules_are_asked_with_the_trials_and_the_address_of_the_log() -> None:
    rule = pb.EarlyStoppingRule(name="loss", value="0.5", comparison=pb.GREATER, start_step=4)
    service = ScriptedEarlyStopping(lambda *_: pb.GetEarlyStoppingRulesReply(early_stopping_rules=[rule]))
    trial = Trial.decode({"metadata": {"name": "t"}})
    with a_client(None, service, reads_history=False, db_manager_address=lambda: "127.0.0.1:6789") as client:
        rules = client.get_early_stopping_rules(STOPPED, (trial,)).result(60)

    assert [(r.name, r.value, r.comparison, r.start_step) for r in rules] == [("loss", "0.5", "greater", 4)]
    assert service.requests[0].db_manager_address == "127.0.0.1:6789"
    assert [t.name for t in service.requests[0].trials] == ["t"]


def test_without_an_early_stopping_service_there_are_no_rules() -> None:
    with a_client() as client:
        assert client.get_early_stopping_rules(EXPERIMENT, ()).result(60) == ()


def test_rules_that_cannot_be_made_while_the_db_manager_is_away_are_a_passing_failure() -> None:
    details = "Exception calling application: <_InactiveRpcError of RPC with: status = StatusCode.UNAVAILABLE>"
    with (
        a_client(None, ScriptedEarlyStopping(aborting(grpc.StatusCode.UNKNOWN, details))) as client,
        pytest.raises(UnavailableError, match="failed: Exception calling application"),
    ):
        client.get_early_stopping_rules(STOPPED, ()).result(60)


def test_failing_rules_are_a_failure_of_the_service() -> None:
    with (
        a_client(None, ScriptedEarlyStopping(aborting(grpc.StatusCode.UNKNOWN, "division by zero"))) as client,
        pytest.raises(InternalError, match="failed: division by zero"),
    ):
        client.get_early_stopping_rules(STOPPED, ()).result(60)


# --- judging running trials -------------------------------------------------------------------------------------------


def test_verdicts_come_back_with_their_reason_in_one_line() -> None:
    verdict = judging.Verdict(trial_name="t", reason="loss 0.9\nis worse than 0.5")
    service = ScriptedJudge(lambda *_: judging.JudgeReply(verdicts=[verdict]))
    trial = Trial.decode({"metadata": {"name": "t"}})
    with a_client(None, service, db_manager_address=lambda: "unix:/log") as client:
        verdicts = client.judge(STOPPED, (trial,)).result(60)

    assert verdicts is not None
    assert [(v.trial_name, v.reason) for v in verdicts] == [("t", "loss 0.9 is worse than 0.5")]
    assert service.judged[0].db_manager_address == "unix:/log"
    assert service.judged[0].experiment.spec.early_stopping.algorithm_name == "medianstop"
    assert [t.name for t in service.judged[0].trials] == ["t"]


def test_a_service_is_asked_once_whether_it_judges() -> None:
    service = ScriptedJudge(lambda *_: judging.JudgeReply())
    with a_client(None, service) as client:
        assert client.judges(STOPPED).result(60)
        assert client.judges(STOPPED).result(60)

    assert len(service.judged) == 1


def test_a_service_of_katib_does_not_judge() -> None:
    with a_client(None, ScriptedEarlyStopping()) as client:
        assert client.judge(STOPPED, ()).result(60) is None
        assert client.judges(STOPPED).result(60) is False


def test_without_an_early_stopping_service_nobody_judges() -> None:
    with a_client() as client:
        assert client.judge(EXPERIMENT, ()).result(60) is None
        assert client.judges(EXPERIMENT).result(60) is False


def test_a_service_that_refuses_to_judge_knows_how_to() -> None:
    refuses = ScriptedJudge(aborting(grpc.StatusCode.INVALID_ARGUMENT))
    with a_client(None, refuses) as client:
        assert client.judges(STOPPED).result(60)


def test_whether_a_service_judges_is_not_known_while_it_is_away() -> None:
    away = ScriptedJudge(aborting(grpc.StatusCode.UNAVAILABLE))
    with a_client(None, away) as client, pytest.raises(UnavailableError):
        client.judges(STOPPED).result(60)


# --- features ---------------------------------------------------------------------------------------------------------

Features = pb.ValidateAlgorithmSettingsReply
SEVERAL = an_experiment(
    objective={"objectives": [{"name": "accuracy", "type": "maximize"}, {"name": "seconds", "type": "minimize"}]}
)
CONDITIONAL = an_experiment(
    parameters=[
        {"name": "kind", "parameterType": "categorical", "feasibleSpace": {"list": ["a", "b"]}},
        {
            "name": "depth",
            "parameterType": "int",
            "feasibleSpace": {"min": "1", "max": "4"},
            "when": {"parameter": "kind", "values": ["a"]},
        },
    ]
)
WARM = an_experiment(warmStart={"experiments": ["before"]})


@pytest.mark.parametrize(
    ("document", "feature", "cause"),
    [
        (SEVERAL, Features.SEVERAL_OBJECTIVES, "searches one objective"),
        (CONDITIONAL, Features.CONDITIONAL_PARAMETERS, "does not know conditional parameters"),
        (WARM, Features.EARLIER_TRIALS, "does not learn from earlier trials"),
    ],
    ids=["several-objectives", "conditional-parameters", "earlier-trials"],
)
@pytest.mark.parametrize("answers", ["nothing", "unimplemented", "other-features", "unknown-number"])
def test_a_service_that_does_not_name_a_feature_is_refused_what_needs_it(
    document: dict[str, Any], feature: int, cause: str, answers: str
) -> None:
    handlers: dict[str, Any] = {
        "nothing": lambda *_: Features(),
        "unimplemented": aborting(grpc.StatusCode.UNIMPLEMENTED),
        "other-features": lambda *_: Features(features=[n for n in range(1, 5) if n != feature]),
        "unknown-number": lambda *_: Features(features=[99]),
    }
    experiment = Experiment.decode(document)
    with a_client(ScriptedSuggestion(validate=handlers[answers])) as client, pytest.raises(InvalidError) as refused:
        client.validate(experiment).result(60)

    name = document["spec"]["algorithm"]["algorithmName"]
    assert str(refused.value.errors[0]).startswith(f"spec.algorithm.algorithmName: {name} {cause}")


@pytest.mark.parametrize("document", [SEVERAL, CONDITIONAL, WARM], ids=["objectives", "conditions", "warm-start"])
def test_a_service_that_names_the_features_is_accepted(document: dict[str, Any]) -> None:
    with a_client(ScriptedSuggestion(validate=lambda *_: Features(features=[1, 2, 3, 4]))) as client:
        client.validate(Experiment.decode(document)).result(60)


def test_constraints_are_asked_of_no_service() -> None:
    document = an_experiment(
        objective={
            "type": "minimize",
            "objectiveMetricName": "loss",
            "constraints": [{"metricName": "latency", "max": 30}],
        }
    )
    with a_client() as client:
        client.validate(Experiment.decode(document)).result(60)
