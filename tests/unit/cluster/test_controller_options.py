"""What a controller can be started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from katib.api.configuration import read_configuration
from katib.cluster.configuration.models import KatibConfig
from katib.cluster.controller import ControllerOptions
from katib.errors import InvalidError


def options(generator: str, certificates: Path | None = None) -> ControllerOptions:
    config = read_configuration(KatibConfig, f"init: {{certGenerator: {generator}}}", "katib-config.yaml")
    return ControllerOptions(config=config, certificates=certificates)


@pytest.mark.parametrize("generator", ["{}", "{enable: true}", "{enable: false, webhookSecretName: mine}"])
def test_a_certificate_is_made_where_nothing_forbids_it(generator: str) -> None:
    options(generator)


def test_a_controller_that_may_not_make_its_certificate_has_to_be_given_one(tmp_path: Path) -> None:
    """It used to make one all the same, and to take over the trust of webhooks that somebody else looks after."""
    with pytest.raises(InvalidError, match=r"init\.certGenerator\.enable: it is false.*--cert-dir"):
        options("{enable: false}")

    options("{enable: false}", tmp_path)
