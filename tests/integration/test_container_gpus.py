"""GPUs of containers in their images, with cards that CDI describes and that are no cards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from katib.places.machine.pods.requests import Capacity
from tests.support.boxes import home_of_boxes, script
from tests.support.local_jobs import Home, job
from tests.support.runtimes import ALL, Installed, installed

pytestmark = pytest.mark.slow

CDI = Path("/var/run/cdi")
CARDS = tuple(f"{os.getpid()}{number}" for number in range(2))
"""Numbers that no machine has, and no other process of tests either."""


@pytest.fixture(params=[name for name in ALL if name != "docker"])
def runtime(request: pytest.FixtureRequest) -> Installed:
    try:
        return installed(request.param)
    except LookupError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def boxed(tmp_path: Path, runtime: Installed) -> Iterator[Home]:
    capacity = Capacity(Decimal(64), Decimal(2**40), CARDS)
    with home_of_boxes(tmp_path, runtime, machine={"capacity": capacity}) as opened:
        yield opened


@pytest.fixture
def described(boxed: Home) -> Iterator[None]:
    """Describe the cards: each is a variable, and a device that is /dev/null by another name."""
    try:
        CDI.mkdir(exist_ok=True)
        file = CDI / f"katib-tests-{os.getpid()}.json"
        devices = [{"name": card, "containerEdits": _edits(card)} for card in CARDS]
        file.write_text(json.dumps({"cdiVersion": "0.3.0", "kind": "nvidia.com/gpu", "devices": devices}))
    except PermissionError as error:
        pytest.skip(f"{CDI} cannot be written: {error.strerror}")
    yield
    file.unlink()


def _edits(card: str) -> dict[str, Any]:
    null = Path("/dev/null").stat().st_rdev
    node = {"path": f"/dev/card{card}", "type": "c", "major": os.major(null), "minor": os.minor(null)}
    return {"env": [f"CARD_{card}=given"], "deviceNodes": [node]}


def wanting(cards: int, name: str) -> dict[str, Any]:
    text = "env; for card in /dev/card*; do [ -c $card ] && echo x > $card && echo device $card; done; exit 0"
    return job(script(text, resources={"limits": {"nvidia.com/gpu": cards}}), name=name)


@pytest.mark.usefixtures("described")
def test_a_container_has_the_cards_that_its_trial_was_given_and_no_others(boxed: Home) -> None:
    boxed.run(wanting(1, "one"))
    boxed.run(wanting(2, "two"))
    boxed.run(job(script("env; ls /dev"), name="none"))

    one, two, none = (boxed.log(name=name) for name in ("one", "two", "none"))
    given = [card for card in CARDS if f"CARD_{card}=given" in one]
    assert len(given) == 1
    assert [line for line in one.splitlines() if line.startswith("device ")] == [f"device /dev/card{given[0]}"]
    assert all(f"CARD_{card}=given" in two and f"device /dev/card{card}" in two for card in CARDS)
    assert not any(f"CARD_{card}" in none or f"card{card}" in none for card in CARDS)


def test_a_card_that_cdi_does_not_know_fails_the_trial_and_says_what_to_do(boxed: Home) -> None:
    end = boxed.run(wanting(1, "unknown"))

    assert end["type"] == "Failed"
    assert ' GPUs to image "localhost/katib-tests:1"' in end["message"]
    assert "nvidia-ctk cdi generate" in end["message"]
