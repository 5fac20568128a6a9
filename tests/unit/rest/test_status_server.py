"""The route of Kubeflow Trainer's status, over HTTP."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from katib.model.metrics import PROGRESS, LogAccess, MetricLog
from katib.wire.rpc.log_guard import LogGuard, MemoryAccessList
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from katib.wire.rpc.trainer_status import StatusReceiver
from katib.wire.serving.certificates import issue
from katib.wire.serving.status_server import StatusServer
from tests.support.observations import MemoryObservationLog

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TOKENS = TokenSigner([b"k" * 32])


class Bench:
    def __init__(self) -> None:
        self.log, self.access, self.stored = MemoryObservationLog(), MemoryAccessList(), list[str]()
        self.access.keep("mine", LogAccess("default"))
        guard = LogGuard(TOKENS, self.access, trusts_loopback=False)
        receiver = StatusReceiver(self.log, guard, self.stored.append, lambda: NOW)
        self.server = StatusServer(lambda: receiver)

    def url_of(self, trial: str) -> str:
        return self.server.url_of(trial, ("loss", "acc"))

    def post(self, content: Any, *, token: str = "", trial: str = "mine", url: str = "") -> tuple[int, str]:
        """Post as Transformers does; return the status and the message."""
        data = content if isinstance(content, bytes) else json.dumps({"trainerStatus": content}).encode()
        headers = {
            "Authorization": f"Bearer {token or TOKENS.token_of(TokenClaims(CallerRole.TRIAL, 'default', trial))}",
            "Content-Type": "application/json",
        }
        request = urllib.request.Request(url or self.url_of(trial), data=data, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())["message"]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.server.close()


def status(progress: int | None = None, **metrics: Any) -> dict[str, Any]:
    listed = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    found: dict[str, Any] = {"lastUpdatedTime": "2026-08-01T12:00:00Z", "metrics": listed}
    return found if progress is None else {**found, "progressPercentage": progress, "estimatedRemainingSeconds": 5}


def test_wanted_metrics_and_the_progress_are_stored_with_the_step_of_transformers(bench: Bench) -> None:
    assert bench.post(status(10, loss=0.5, grad_norm=1.2, current_step=7)) == (200, "")
    assert list(bench.log.read("mine")) == [MetricLog(NOW, "loss", "0.5", 7), MetricLog(NOW, PROGRESS, "10", 7)]
    assert bench.stored == ["mine"]


def test_what_a_status_repeats_is_stored_once(bench: Bench) -> None:
    for sent in (status(10, loss=0.5), status(10, loss=0.5), status(20, loss=0.5), status(20, loss=0.4, acc="nan")):
        assert bench.post(sent)[0] == 200

    assert [(one.name, one.value) for one in bench.log.read("mine")] == [
        ("loss", "0.5"),
        (PROGRESS, "10"),
        (PROGRESS, "20"),
        ("loss", "0.4"),
        ("acc", "nan"),
    ]
    assert len(bench.stored) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "it is not a status of Kubeflow Trainer"),
        (b'{"trainerStatus": 3}', "it is not a status of Kubeflow Trainer"),
        (b'{"trainerStatus": {"metrics": [{"name": "loss"}]}}', "it is not a status"),
        (status(**{f"m{i}": i for i in range(257)}), "there are 257; post at most 256"),
        (b" " * (1 << 19), "it is too large"),
        ({"metrics": []}, "trainerStatus.lastUpdatedTime: it is missing"),
        ({"metrics": [], "lastUpdatedTime": "noon"}, "trainerStatus.lastUpdatedTime: it is missing, or not a time"),
    ],
    ids=["no JSON", "no object", "no value", "many", "large", "no time", "not a time"],
)
def test_what_is_no_status_is_refused(bench: Bench, content: Any, words: str) -> None:
    code, message = bench.post(content)

    assert code == 422
    assert words in message
    assert not list(bench.log.read("mine"))


def test_a_value_that_is_no_number_is_passed_over(bench: Bench) -> None:
    assert bench.post(status(None, loss="high", acc=0.5)) == (200, "")
    assert [one.name for one in bench.log.read("mine")] == ["acc"]


def test_a_certificate_that_is_renewed_is_shown(tmp_path: Path) -> None:
    def renew() -> ssl.SSLContext:
        issued = issue(["127.0.0.1"], datetime.now(UTC), timedelta(days=1))
        for path, content in zip(files, (issued.certificate.chain, issued.certificate.key), strict=True):
            path.write_bytes(content)
        return ssl.create_default_context(cadata=issued.authority.decode())

    def is_trusted(context: ssl.SSLContext) -> bool:
        request = urllib.request.Request(
            server.url_of("mine", ()), data=json.dumps({"trainerStatus": status()}).encode()
        )
        try:
            urllib.request.urlopen(request, timeout=20, context=context).close()
        except urllib.error.URLError:
            return False
        return True

    files = (tmp_path / "tls.crt", tmp_path / "tls.key")
    first = renew()
    receiver = StatusReceiver(MemoryObservationLog(), None, lambda _trial: None)
    server = StatusServer(lambda: receiver, certificate=files)
    try:
        assert is_trusted(first)
        assert is_trusted(renew())
        assert not is_trusted(first)
    finally:
        server.close()


def test_only_the_trial_itself_may_post_and_until_its_end(bench: Bench) -> None:
    assert bench.post(status(1), token="wrong")[0] == 403
    assert bench.post(status(1), token=TOKENS.token_of(TokenClaims(CallerRole.TRIAL, "default", "other")))[0] == 403
    assert bench.post(status(1), url=bench.url_of("mine").replace("/status", ""))[0] == 422
    bench.access.end("mine")
    code, message = bench.post(status(1))
    assert code == 403
    assert "it has ended" in message
    assert not list(bench.log.read("mine"))
