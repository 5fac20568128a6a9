"""Ask and tell in a program of coroutines: each call runs in a thread, and is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, SupportsFloat, SupportsIndex

from katib.sdk.asking import AskedTrial, Experiment


class AsyncTrial:
    """A trial that this program evaluates; its calls do what those of `AskedTrial` do.

    Attributes:
        trial: The trial with calls that block.
    """

    def __init__(self, trial: AskedTrial) -> None:
        self.trial = trial

    @property
    def name(self) -> str:
        """Name of the trial."""
        return self.trial.name

    @property
    def parameters(self) -> dict[str, Any]:
        """Its arguments, with their Python types."""
        return self.trial.parameters

    async def report(
        self,
        metrics: Mapping[str, SupportsFloat] | None = None,
        /,
        *,
        step: SupportsIndex | None = None,
        **named: SupportsFloat,
    ) -> None:
        """Report readings. Raises as `AskedTrial.report`."""
        await asyncio.to_thread(self.trial.report, metrics, step=step, **named)

    async def tell(
        self, metrics: SupportsFloat | Mapping[str, SupportsFloat] | None = None, /, **named: SupportsFloat
    ) -> str:
        """End the trial with its value. Raises as `AskedTrial.tell`."""
        return await asyncio.to_thread(self.trial.tell, metrics, **named)

    async def fail(self, reason: str = "") -> None:
        """End the trial as failed."""
        await asyncio.to_thread(self.trial.fail, reason)


class AsyncExperiment:
    """An experiment whose trials this program evaluates; its calls do what those of `Experiment` do."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    async def ask(self, timeout_seconds: float | None = None) -> AsyncTrial | None:
        """Return the next trial; None when the experiment has ended, or the time is up."""
        trial = await asyncio.to_thread(self._experiment.ask, timeout_seconds)
        return None if trial is None else AsyncTrial(trial)

    async def ask_until_done(self) -> AsyncIterator[AsyncTrial]:
        """Yield trials until the experiment has ended; for several at once, iterate in several tasks."""
        while (trial := await self.ask()) is not None:
            yield trial
