"""One engine for the tests of a file that need none of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from katib.service.tuning.service import TuningService
from tests.support.engines import working


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TuningService]:
    """An engine that tests use one after the other."""
    with working(tmp_path_factory.mktemp("shared")) as service:
        yield service


@pytest.fixture
def service(shared: TuningService) -> Iterator[TuningService]:
    """An engine at work, without experiments."""
    yield shared
    for experiment in shared.experiments():
        shared.delete(experiment.namespace, experiment.name)
