"""What the runner says of the jobs of trials: whether they run, what they wait for, and which images are fetched."""

from __future__ import annotations

from collections.abc import Callable

from katib.api.types import Trial
from katib.controllers.kinds import key_of
from katib.controllers.ports import NO_UPDATE, EventRecorder, PodUpdate
from katib.local.jobs.run import Standing
from katib.local.pods.objects import pulling_words
from katib.local.pods.pulls import PullNews
from katib.runtime.objects import Key, Object
from katib.tuning.reading import format_duration

_MINUTE_SECONDS = 60


class TrialJobs:
    """Fits `katib.controllers.ports.PodWatcher`.

    Args:
        trial_of: Finds the trial of a job.
        events: Where the beginning and the end of a fetch are noted, in the words of a kubelet.
        pulling: Which image is fetched for a job; empty when none is.
        standing: Whether a job runs and what it waits for; None for one that is not known.
        wake: Has the controller look at a trial again.
    """

    def __init__(
        self,
        trial_of: Callable[[Key], Trial | None],
        events: EventRecorder,
        pulling: Callable[[Key], str],
        standing: Callable[[Key], Standing | None],
        wake: Callable[[Key], None],
    ) -> None:
        self._trial_of = trial_of
        self._events = events
        self._pulling = pulling
        self._standing = standing
        self._wake = wake

    def update_of(self, trial: Trial) -> PodUpdate:
        """Return whether a trial runs and what it waits for; the image that is fetched for it before anything else."""
        key = key_of(trial)
        image, standing = self._pulling(key), self._standing(key)
        if standing is None:
            return NO_UPDATE
        waiting = pulling_words(image) if image else standing.waiting
        return PodUpdate(waiting=waiting, is_trouble=False, runs=standing.runs)

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
