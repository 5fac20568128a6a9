"""The source against real servers on this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from metrics_collector.sources.prometheus import PrometheusEndpoint
from metrics_collector.sources.scraping import MetricsEndpoint, ScrapeError, ScrapeResponse, scrape
from tests.support.scrapes import Exporter, drips, exporter, floods
from tests.support.waiting import eventually


@pytest.fixture
def program() -> Iterator[Exporter]:
    with exporter() as found:
        yield found


def endpoint(program: Exporter, **http_get: object) -> MetricsEndpoint:
    return MetricsEndpoint.of({"host": "127.0.0.1", "port": program.port, "path": "/metrics", **http_get})


@pytest.fixture
def source(program: Exporter) -> Iterator[PrometheusEndpoint]:
    source = PrometheusEndpoint([endpoint(program)], ["loss"], interval_seconds=0.01)
    yield source
    source.close()


def polled(source: PrometheusEndpoint) -> list[str]:
    return [log.value for logs in source.poll() for log in logs]


def test_readings_come_while_the_program_changes_them(program: Exporter, source: PrometheusEndpoint) -> None:
    values: list[str] = []
    for value in ("0.5", "0.25"):
        program.says(f"loss {value}\n")
        eventually(lambda value=value: values.extend(polled(source)) or value in values)  # type: ignore[misc]

    assert values == ["0.5", "0.25"]
    assert source.problem == ""
    assert source.seen().endswith(f"of http://127.0.0.1:{program.port}/metrics")


def test_a_program_that_is_about_to_end_is_scraped_at_once(program: Exporter) -> None:
    program.says("loss 0.5\n")
    source = PrometheusEndpoint([endpoint(program)], ["loss"], interval_seconds=3600)
    values: list[str] = []
    eventually(lambda: values.extend(polled(source)) or values)

    program.says("loss 0.25\n")
    source.hasten()
    eventually(lambda: values.extend(polled(source)) or len(values) == 2)
    source.close()

    assert values == ["0.5", "0.25"]


def test_the_end_of_the_program_is_followed_by_one_more_scrape(program: Exporter) -> None:
    program.says("loss 0.5\n")
    source = PrometheusEndpoint([endpoint(program)], ["loss"], interval_seconds=3600)
    values: list[str] = []
    eventually(lambda: values.extend(polled(source)) or values)

    program.says("loss 0.25\n")
    source.end()
    eventually(lambda: source.is_over)

    assert [*values, *(log.value for log in source.finish())] == ["0.5", "0.25"]


def test_a_program_that_is_gone_is_no_problem() -> None:
    answers = iter([ScrapeResponse(b"loss 0.5\n", "")])
    refused = threading.Event()

    def once(_endpoint: MetricsEndpoint) -> ScrapeResponse:
        for answer in answers:
            return answer
        refused.set()
        raise ScrapeError("cannot be reached", is_unreachable=True)

    source = PrometheusEndpoint([MetricsEndpoint()], ["loss"], scrape=once, interval_seconds=0.0)
    eventually(lambda: polled(source))
    assert refused.wait(60)
    source.end()
    eventually(lambda: source.is_over)

    assert source.problem == ""


def test_a_program_that_never_listens_is_one() -> None:
    with socket.socket() as taken:  # bound and not listening: refused, and nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        url = MetricsEndpoint("127.0.0.1", taken.getsockname()[1])
        source = PrometheusEndpoint([url], ["loss"], interval_seconds=0.01)
        eventually(lambda: list(source.poll()) or source.problem)
        source.close()

    assert source.is_empty
    assert source.problem.startswith(f"{url} cannot be reached")
    assert source.seen() == f"no answer from {url}"


def test_a_second_place_is_asked_while_nobody_is_at_the_first(program: Exporter) -> None:
    program.says("loss 0.5\n")
    nobody = MetricsEndpoint("127.0.0.1", 1)
    source = PrometheusEndpoint([nobody, endpoint(program)], ["loss"], interval_seconds=0.01)
    eventually(lambda: polled(source))
    source.close()


def test_an_endpoint_that_recovers_is_no_problem_any_more(program: Exporter, source: PrometheusEndpoint) -> None:
    program.respond = lambda request: request.send_error(500)
    eventually(lambda: polled(source) or source.problem)
    assert "500" in source.problem

    program.says("loss 0.5\n")
    eventually(lambda: polled(source))
    assert source.problem == ""


def test_a_scrape_that_hangs_delays_no_poll() -> None:
    hangs, asked = threading.Event(), threading.Event()

    def hang(_endpoint: MetricsEndpoint) -> ScrapeResponse:
        asked.set()
        hangs.wait(60)
        return ScrapeResponse(b"loss 0.5\n", "")

    source = PrometheusEndpoint([MetricsEndpoint()], ["loss"], scrape=hang)
    assert polled(source) == []
    assert asked.wait(60)
    assert polled(source) == []
    assert source.finish() == []
    source.end()
    assert not source.is_over
    hangs.set()
    eventually(lambda: source.is_over)


def test_the_scrape_that_is_under_way_is_the_last_one() -> None:
    answers, asked, settled = threading.Event(), threading.Semaphore(0), threading.Event()

    def answer(_endpoint: MetricsEndpoint) -> ScrapeResponse:
        asked.release()
        answers.wait(60)
        return ScrapeResponse(b"loss 0.5\n", "")

    source = PrometheusEndpoint([MetricsEndpoint()], ["loss"], scrape=answer, interval_seconds=0.0)
    assert polled(source) == []
    assert asked.acquire(timeout=60)
    source.settle(settled.set)
    assert not settled.is_set()
    answers.set()

    assert settled.wait(60)
    assert [log.value for log in source.finish()] == ["0.5"]
    assert not asked.acquire(blocking=False)


def test_a_source_that_never_began_settles_at_once() -> None:
    settled = threading.Event()
    PrometheusEndpoint([MetricsEndpoint()], ["loss"]).settle(settled.set)

    assert settled.is_set()


def test_headers_and_scheme_of_the_source_are_used(program: Exporter) -> None:
    program.says("loss 0.5\n")
    headers = [{"name": "Authorization", "value": "Bearer x"}, {"name": ""}, "none"]

    scrape(endpoint(program, path="/m?x=1", httpHeaders=headers))

    assert program.requests == ["/m?x=1"]
    assert program.headers[0]["Authorization"] == "Bearer x"
    assert str(endpoint(program, scheme="HTTPS", host="::1")) == f"https://[::1]:{program.port}/metrics"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"port": "http", "path": null, "httpHeaders": 3}'])
def test_an_endpoint_that_nobody_described_is_katibs_default(text: str) -> None:
    assert MetricsEndpoint.of_text(text) == MetricsEndpoint("localhost", 8080, "/metrics")


def test_an_answer_that_never_ends_is_left_in_time(program: Exporter) -> None:
    program.respond = drips

    with pytest.raises(ScrapeError, match="does not answer within"):
        scrape(endpoint(program), seconds=0.3)


def test_an_answer_that_never_begins_is_left_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = MetricsEndpoint("127.0.0.1", server.getsockname()[1])
        with pytest.raises(ScrapeError, match="does not answer within"):
            scrape(silent, seconds=0.3)


def test_100_mb_are_not_taken(program: Exporter) -> None:
    program.respond = floods

    with pytest.raises(ScrapeError, match="more than 4 MB"):
        scrape(endpoint(program), seconds=30)


def test_tls_that_the_server_does_not_speak_is_told(program: Exporter) -> None:
    with pytest.raises(ScrapeError):
        scrape(endpoint(program, scheme="HTTPS"), seconds=5)


def test_what_is_no_http_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = MetricsEndpoint("127.0.0.1", server.getsockname()[1])

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"\x00\xff hello\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ScrapeError):
            scrape(place, seconds=5)
        thread.join(60)
