from __future__ import annotations

import errno
import http.client
import json
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from katib.errors import FieldError, InvalidError, KatibError, TerminalError, UnavailableError
from katib.places.cluster.admission import server as server_module
from katib.places.cluster.admission.certificate_sources import MountedCertificate
from katib.places.cluster.admission.reviews import ALLOWED, AdmissionResponse, AdmissionReview
from katib.places.cluster.admission.server import CERTIFICATE_PERIOD_SECONDS, AdmissionServer
from katib.wire.serving.blocking import MAX_BODY_BYTES
from katib.wire.serving.certificates import Certificate, Issued, issue
from katib.wire.serving.prompt_server import PromptServer
from tests.support.clock import VirtualClock
from tests.support.golden import Golden
from tests.support.waiting import eventually

TIMEOUT = 60.0


def fresh() -> Issued:
    return issue(("127.0.0.1",), datetime.now(UTC), timedelta(days=1))


class Source:
    """A source whose certificate the test chooses."""

    def __init__(self, certificate: Certificate | KatibError) -> None:
        self.certificate = certificate

    @property
    def is_published(self) -> bool:
        return True

    def refresh(self) -> Certificate:
        if isinstance(self.certificate, KatibError):
            raise self.certificate
        return self.certificate


class World:
    """A server, and callers who trust the authorities in `trusted`."""

    def __init__(self) -> None:
        first = fresh()
        self.trusted = first.authority
        self.source = Source(first.certificate)
        self.clock = VirtualClock()
        self.hold = threading.Event()
        self.entered = threading.Semaphore(0)
        self.server = AdmissionServer(
            {"/allow": lambda _review: ALLOWED, "/refuse": refuse, "/break": fail, "/hold": self._held},
            self.source,
            host="127.0.0.1",
            port=0,
            clock=self.clock,
        )

    def _held(self, _review: AdmissionReview) -> AdmissionResponse:
        self.entered.release()
        assert self.hold.wait(TIMEOUT)
        return ALLOWED

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cadata=self.trusted.decode())
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=TIMEOUT)

    def ask(self, path: str, connection: http.client.HTTPSConnection | None = None) -> dict[str, Any]:
        own = connection or self.connect()
        own.request("POST", f"{path}?timeout=10s", review())
        answer: dict[str, Any] = json.loads(own.getresponse().read())["response"]
        if connection is None:
            own.close()
        return answer

    def look_again(self) -> None:
        """Let a period pass, and wait until the watch has looked."""
        eventually(lambda: self.clock.waiting_count == 1)
        self.clock.advance(CERTIFICATE_PERIOD_SECONDS)


def review() -> bytes:
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "operation": "CREATE"}}).encode()


def refuse(_review: AdmissionReview) -> AdmissionResponse:
    raise InvalidError([FieldError("spec.a", "it is 1", "make it 2", "x")])


def fail(_review: AdmissionReview) -> AdmissionResponse:
    raise ZeroDivisionError


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.server:
        yield world


def test_a_connection_serves_many_reviews(world: World) -> None:
    connection = world.connect()

    assert [world.ask("/allow", connection)["allowed"] for _ in range(3)] == [True, True, True]
    connection.close()


def test_an_error_for_users_is_a_refusal_with_its_message(world: World, golden: Golden) -> None:
    answer = world.ask("/refuse")

    assert answer["allowed"] is False
    golden(answer["status"]["message"])


def test_a_handler_that_breaks_refuses_and_is_logged_once_with_its_traceback(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    connection = world.connect()
    answer = world.ask("/break", connection)

    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)
    assert "ZeroDivision" not in answer["status"]["message"]
    assert [record.exc_info is not None for record in caplog.records if record.levelno >= logging.ERROR] == [True]
    assert world.ask("/allow", connection)["allowed"]
    connection.close()


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        pytest.param("/elsewhere", {}, review(), 404, id="unknown path"),
        pytest.param("/allow", {}, b"no review", 400, id="no review"),
        pytest.param("/allow", {"Content-Length": str(MAX_BODY_BYTES + 1)}, b"", 413, id="too large"),
        pytest.param("/allow", {"Content-Length": "many"}, b"", 400, id="no length"),
    ],
)
def test_a_bad_request_gets_its_status_and_the_next_caller_an_answer(
    world: World, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    connection = world.connect()
    connection.request("POST", path, body, headers)

    assert connection.getresponse().status == status
    connection.close()
    assert world.ask("/allow")["allowed"]


def test_a_review_of_three_mebibytes_twice_is_answered(world: World) -> None:
    objects = {"object": {"a": "x" * 3 * 2**20}, "oldObject": {"a": "y" * 3 * 2**20}}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", **objects}}).encode()
    connection = world.connect()
    connection.request("POST", "/allow", body)

    assert connection.getresponse().status == 200
    connection.close()


def test_callers_who_stall_or_speak_no_tls_hold_up_no_other(world: World) -> None:
    silent = [socket.create_connection(("127.0.0.1", world.server.port)) for _ in range(20)]
    plain = socket.create_connection(("127.0.0.1", world.server.port))
    plain.sendall(b"GET / HTTP/1.1\r\n\r\n")

    assert world.ask("/allow")["allowed"]
    for connection in [*silent, plain]:
        connection.close()


def test_reviews_that_wait_hold_up_no_other(world: World) -> None:
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(world.ask, "/hold") for _ in range(20)]
        try:
            assert all(world.entered.acquire(timeout=TIMEOUT) for _ in waiting)
            assert world.ask("/allow")["allowed"]
        finally:
            world.hold.set()


def test_a_new_certificate_is_used_for_new_connections_and_old_ones_go_on(world: World) -> None:
    old = world.connect()
    world.ask("/allow", old)
    assert world.server.is_ready
    second = fresh()
    world.source.certificate = second.certificate
    world.look_again()
    world.trusted = second.authority

    eventually(lambda: is_trusted(world))
    assert world.server.is_ready
    assert world.ask("/allow", old)["allowed"]
    old.close()


def test_callers_are_answered_all_the_time_while_certificates_change(world: World) -> None:
    generations = [fresh() for _ in range(10)]
    world.trusted += b"".join(issued.authority for issued in generations)
    stop = threading.Event()

    def ask() -> int:
        count = 0
        while not stop.is_set():
            assert world.ask("/allow")["allowed"]
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(ask) for _ in range(4)]
        for issued in generations:
            world.source.certificate = issued.certificate
            world.look_again()
        eventually(lambda: world.clock.waiting_count == 1)
        stop.set()
        assert sum(caller.result(TIMEOUT) for caller in callers) >= 4


def test_a_certificate_that_cannot_be_had_leaves_the_one_in_use_and_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.source.certificate = UnavailableError("the API server is away")
    world.look_again()
    world.look_again()
    eventually(lambda: world.clock.waiting_count == 1)

    assert world.ask("/allow")["allowed"]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_without_a_certificate_the_server_is_not_ready_until_one_comes() -> None:
    world = World()
    certificate = world.source.certificate
    world.source.certificate = UnavailableError("the API server is away")
    with world.server:
        assert not world.server.is_ready
        assert not is_trusted(world)

        world.source.certificate = certificate
        world.look_again()

        eventually(lambda: world.server.is_ready)
        assert world.ask("/allow")["allowed"]


def test_a_server_is_ready_only_while_it_shows_the_certificate_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here nobody accepts connections at first: the server's thread has died, say."""
    world = World()
    monkeypatch.setattr(server_module, "SELF_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(PromptServer, "run", lambda *_args, **_kwargs: world.hold.wait(TIMEOUT))
    with world.server:
        assert not world.server.is_ready
        world.hold.set()


def test_a_port_in_use_is_named(world: World) -> None:
    second = AdmissionServer({}, world.source, host="127.0.0.1", port=world.server.port)

    with pytest.raises(TerminalError, match=f"port {world.server.port} of 127.0.0.1: Address already in use; free it"):
        second.start()
    second.stop()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_server_of_no_host_in_particular_is_reached_by_both_families(address: str) -> None:
    if ":" in address and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    world = World()
    server = AdmissionServer({"/allow": lambda _review: ALLOWED}, world.source, port=0, clock=world.clock)
    with server:
        try:
            socket.create_connection((address, server.port), TIMEOUT).close()
        except OSError as error:
            if ":" in address and error.errno in {errno.EADDRNOTAVAIL, errno.ENETUNREACH}:
                pytest.skip("this machine has no IPv6 address")
            raise


def test_stopping_lets_the_request_under_way_finish_and_closes_idle_connections(world: World) -> None:
    idle = world.connect()
    world.ask("/allow", idle)
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(world.ask, "/hold")
        assert world.entered.acquire(timeout=TIMEOUT)
        port = world.server.port
        stopped = pool.submit(world.server.stop)
        eventually(lambda: not is_open(port))
        world.hold.set()

        assert asked.result(TIMEOUT)["allowed"]
        stopped.result(TIMEOUT)

    with pytest.raises((http.client.RemoteDisconnected, OSError)):
        world.ask("/allow", idle)
    idle.close()
    ours = ("katib-admission", "katib-certificates")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(ours)] == []


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    first, second = fresh().certificate, fresh().certificate
    source = MountedCertificate(tmp_path)
    with pytest.raises(UnavailableError, match=r"tls\.crt"):
        source.refresh()

    write(tmp_path, first)
    assert source.refresh() == first

    write(tmp_path, Certificate(second.chain, first.key))
    with pytest.raises(InvalidError, match="one pair"):
        source.refresh()

    write(tmp_path, second)
    assert source.refresh() == second


def write(directory: Path, certificate: Certificate) -> None:
    (directory / "tls.crt").write_bytes(certificate.chain)
    (directory / "tls.key").write_bytes(certificate.key)


def is_trusted(world: World) -> bool:
    try:
        return bool(world.ask("/allow")["allowed"])
    except OSError:
        return False


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
