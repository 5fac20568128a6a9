"""Fixtures and settings of the whole suite: what is started once for all tests that want it."""

import atexit
import fcntl
import gc
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.support.api_server import api_server
from tests.support.golden import golden, pytest_collection_modifyitems, pytest_sessionfinish
from tests.support.processes import Launch, launching
from tests.support.skips import pytest_terminal_summary
from tests.support.waiting import PATIENCE_SECONDS

__all__ = ["api_server", "golden", "pytest_collection_modifyitems", "pytest_sessionfinish", "pytest_terminal_summary"]

# How long an example takes is the machine's affair. Each run draws the same examples; for others, and more of them:
# --hypothesis-profile=explore
_ANY_SPEED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("suite", derandomize=True, **_ANY_SPEED)
settings.register_profile("explore", max_examples=1000, **_ANY_SPEED)
settings.load_profile("suite")

# By default httpx waits five seconds for an answer.
for _call in (httpx.Client.__init__, httpx.request, httpx.get, httpx.post):
    _call.__kwdefaults__["timeout"] = PATIENCE_SECONDS

# A suite that was started in the background, or by nohup, inherits signals that are ignored; programs that tests start
# would inherit that too, and a shell cannot even trap what was ignored when it began.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


# Python's own 700 new objects between two searches for garbage cost an eighth of what tests compute.
gc.set_threshold(20_000)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without searches for garbage: what is made stays to the end, so later ones leave it out, too."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# What engines lease of the machine is one table for all that a user runs there. Each test has one of its own, so none
# waits for another, nor for what runs beside the suite. Nor does a test find a server that this account runs.
_LEASES = Path(tempfile.mkdtemp(prefix="katib-tests-leases-"))
_NUMBERS = itertools.count()
os.environ["KATIB_LEASES"] = str(_LEASES / "suite")
os.environ["XDG_STATE_HOME"] = str(_LEASES / "state")
atexit.register(shutil.rmtree, _LEASES, ignore_errors=True)


@pytest.fixture(autouse=True)
def leases(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the engines of a test note what they lease; it is made when one does."""
    directory = _LEASES / str(next(_NUMBERS))
    monkeypatch.setenv("KATIB_LEASES", str(directory))
    return directory


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Start programs as `subprocess.Popen` does; none outlives its test."""
    with launching() as launch:
        yield launch


@pytest.fixture(autouse=True)
def steady_network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep networks of containers and browsers apart.

    Such a network adds and removes interfaces of the machine, and Chromium then gives up what it is fetching
    (ERR_NETWORK_CHANGED).
    """
    makes_networks = request.node.get_closest_marker("networks") is not None
    if not makes_networks and not {"page", "context"}.intersection(request.fixturenames):
        yield
        return
    directory = Path(tempfile.gettempdir())
    with (directory / "katib-tests-network.lock").open("w") as lock:
        with (directory / "katib-tests-network-next.lock").open("w") as first:  # who waits for pages comes next
            fcntl.flock(first, fcntl.LOCK_EX)
            fcntl.flock(lock, fcntl.LOCK_EX if makes_networks else fcntl.LOCK_SH)
        yield
