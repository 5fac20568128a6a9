"""How long the logs of trials are kept, as it stands in the configuration of both homes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

from katib.api.configuration import ConfigModel


class RetentionConfig(ConfigModel):
    """Which logs of trials that are over may go. What a trial's status says of its metrics stays.

    Attributes:
        max_age_seconds: Logs of trials that ended longer ago than this go; None: at no age.
        max_trials: Of each experiment, only the logs of so many trials that ended last stay; None: all do.
    """

    max_age_seconds: Annotated[int, Strict(), Field(ge=1)] | None = None
    max_trials: Annotated[int, Strict(), Field(ge=1)] | None = None
