"""What trials are told of images that are fetched for them: in their condition while it goes on, and as events."""

from __future__ import annotations

from collections.abc import Callable

from katib.api.types import Trial
from katib.controllers.kinds import key_of
from katib.controllers.ports import NO_UPDATE, EventRecorder, PodUpdate
from katib.local.pods.objects import pulling_words
from katib.local.pods.pulls import PullNews
from katib.runtime.objects import Key, Object
from katib.tuning.reading import format_duration

_MINUTE_SECONDS = 60


class TrialPulls:
    """Fits `katib.controllers.ports.PodWatcher`.

    Args:
        trial_of: Finds the trial of a job.
        events: Where the beginning and the end of a fetch are noted, in the words of a kubelet.
        pulling: Which image is fetched for a job; empty when none is.
        wake: Has the controller look at a trial again.
    """

    def __init__(
        self,
        trial_of: Callable[[Key], Trial | None],
        events: EventRecorder,
        pulling: Callable[[Key], str],
        wake: Callable[[Key], None],
    ) -> None:
        self._trial_of = trial_of
        self._events = events
        self._pulling = pulling
        self._wake = wake

    def update_of(self, trial: Trial) -> PodUpdate:
        """Return that a trial waits for an image, where it does."""
        image = self._pulling(key_of(trial))
        return PodUpdate(waiting=pulling_words(image)) if image else NO_UPDATE

    def told(self, job: Object, news: PullNews) -> None:
        """Note what happened to an image of a job."""
        key = Key.of(job)
        trial = self._trial_of(key)
        if trial is None:
            return
        reason, message = _event(news)
        self._events.record(trial, warning=bool(news.problem), reason=reason, message=message)
        self._wake(key)


def _event(news: PullNews) -> tuple[str, str]:
    """Return the reason and the message of the event that a kubelet would write."""
    if news.seconds is None:
        return "Pulling", f'Pulling image "{news.image}"'
    if news.problem:
        return "Failed", f'Failed to pull image "{news.image}": {news.problem}'
    took = f"{news.seconds:.1f}s" if news.seconds < _MINUTE_SECONDS else format_duration(news.seconds)
    return "Pulled", f'Successfully pulled image "{news.image}" in {took}'
