"""State machine of one suggestion's services. Pure: a state and observations in, a state out.

    Deployment missing ----> available? ----> health check sent ----> ready
                                ^  |                                   |
                                |  +--- no: its pods have the cause    |
                                +--------------------------------------+  no longer available

Trouble is the obstacle to the next state, in the words of its pods, of the API server, or of gRPC. A slow service has
none as long as its Deployment's own deadline allows. A service's own trouble that outlasts the patience is a failure,
and final. Trouble of the cluster that may pass, such as lack of capacity, is reported and waited out: an experiment of
days is worth more than an hour without a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from katib.engine.algorithm_services.readiness import User
from katib.engine.runtime.objects import Key, Object
from katib.errors import Backoff
from katib.places.cluster.services.plan import ClusterPlan
from katib.places.cluster.services.trouble import NO_TROUBLE, ReadinessProblem, is_available


@dataclass(frozen=True, slots=True)
class ClusterTiming:
    """Timeouts and intervals, in seconds.

    Attributes:
        patience: How long a service may have trouble of its own before its experiment fails.
        first_look: Delay until the pods of an unavailable Deployment are inspected.
        look: Interval between inspections.
        probe: Delay until an unresponsive service is probed again.
        retry: Delay until a failed creation of an object is retried.
        settle: How long after its creation an object may be missing in the cache.
        grace: How long trouble is tolerated before the service counts as failing: a container starts before it listens.
    """

    patience: float = 120.0
    first_look: float = 2.0
    look: float = 10.0
    probe: Backoff = Backoff(0.05, 1.0)
    retry: float = 2.0
    settle: float = 10.0
    grace: float = 5.0


@dataclass(frozen=True, slots=True)
class ServiceProgress:
    """Current state of one suggestion's services; times are monotonic.

    Attributes:
        reads_history: Whether the suggestion service needs the trials.
        created_at: When its objects were created, if by this process.
        blocked: Why they cannot be created.
        trouble_since: Since when it has trouble of its own.
        crash: The last trouble of its own that its pods reported since it was ready: more informative than the refused
            connections of a crash loop.
        next_look: When to inspect its pods.
        next_probe: When to send the next health check.
        failed_probes: Consecutive health checks without success.
        asking: Endpoints with a pending health check.
        healthy: Endpoints that passed.
        ready: Whether it can be used.
        failure: Why it never will be; empty while it may.
    """

    user: User
    owner_uid: str
    plan: ClusterPlan
    reads_history: bool = True
    created_at: float | None = None
    blocked: ReadinessProblem = NO_TROUBLE
    retry_at: float = 0.0
    trouble: ReadinessProblem = NO_TROUBLE
    trouble_since: float | None = None
    crash: ReadinessProblem = NO_TROUBLE
    next_look: float | None = None
    next_probe: float = 0.0
    failed_probes: int = 0
    asking: frozenset[int] = frozenset()
    healthy: frozenset[int] = frozenset()
    ready: bool = False
    failure: str = ""

    @property
    def key(self) -> Key:
        return Key(self.user[0], self.plan.name)

    def is_failing(self, timing: ClusterTiming, now: float) -> bool:
        """Return whether it needs a person's attention."""
        lasting = self.trouble_since is not None and now - self.trouble_since >= timing.grace
        return bool(self.failure) or self.trouble.may_pass or lasting


@dataclass(frozen=True, slots=True)
class ServiceAction:
    """The next action on a service.

    Attributes:
        served: Its new state.
        creates: Whether to notify its experiment, so that its objects are created.
        asks: Endpoints to send a health check.
        due: When to run the next step without being woken; None for never.
    """

    served: ServiceProgress
    creates: bool = False
    looks_at_pods: bool = False
    asks: tuple[int, ...] = ()
    due: float | None = None


def next_step(served: ServiceProgress, deployment: Object | None, timing: ClusterTiming, now: float) -> ServiceAction:
    """Return the next step.

    Args:
        now: Monotonic time.
    """
    if served.failure:
        return ServiceAction(served)
    if not served.plan.has_objects:
        return ServiceAction(_ready(served))
    if deployment is None:
        return _missing(_unready(served), timing, now)
    if not is_available(deployment):
        return _unavailable(_unready(served), timing, now)
    return ServiceAction(served) if served.ready else _probe(served, now)


def after_creation(served: ServiceProgress, now: float) -> ServiceProgress:
    return replace(served, blocked=NO_TROUBLE, created_at=now)


def after_block(
    served: ServiceProgress, trouble: ReadinessProblem, timing: ClusterTiming, now: float
) -> ServiceProgress:
    """Return the state after its objects could not be created."""
    return replace(served, blocked=trouble, created_at=None, retry_at=now + timing.retry)


def after_look(
    served: ServiceProgress, trouble: ReadinessProblem, timing: ClusterTiming, now: float
) -> ServiceProgress:
    """Return the state after its pods were inspected."""
    crash = trouble if trouble and not trouble.may_pass else served.crash
    return _held_against(replace(served, crash=crash), trouble, timing, now)


def after_answer(
    served: ServiceProgress, endpoint: int, refusal: str, timing: ClusterTiming, now: float
) -> ServiceProgress:
    """Return the state after a health check of an endpoint; an empty refusal means that it serves."""
    asking = served.asking - {endpoint}
    if not refusal:
        return replace(served, asking=asking, healthy=served.healthy | {endpoint}, failed_probes=0)
    failed = served.failed_probes + 1
    waiting = replace(served, asking=asking, failed_probes=failed, next_probe=now + timing.probe.pause_seconds(failed))
    return _held_against(waiting, served.crash or ReadinessProblem(refusal), timing, now)


def is_notable(old: ServiceProgress, new: ServiceProgress) -> bool:
    """Return whether a change requires a reconcile of the experiment."""
    other_trouble = new.trouble.may_pass and new.trouble != old.trouble
    return (old.ready, old.failure) != (new.ready, new.failure) or other_trouble


def _missing(served: ServiceProgress, timing: ClusterTiming, now: float) -> ServiceAction:
    """Nothing exists yet: request creation, or wait until the cache shows it."""
    served = _held_against(served, served.blocked, timing, now)
    if served.failure:
        return ServiceAction(served)
    if served.created_at is not None and now - served.created_at < timing.settle:
        return ServiceAction(served, due=served.created_at + timing.settle)
    if now < served.retry_at:
        return ServiceAction(served, due=served.retry_at)
    retry_at = now + timing.retry
    return ServiceAction(replace(served, retry_at=retry_at), creates=True, due=retry_at)


def _unavailable(served: ServiceProgress, timing: ClusterTiming, now: float) -> ServiceAction:
    first_look = now + timing.first_look if served.next_look is None else served.next_look
    if now < first_look:
        return ServiceAction(replace(served, blocked=NO_TROUBLE, next_look=first_look), due=first_look)
    next_look = now + timing.look
    return ServiceAction(replace(served, blocked=NO_TROUBLE, next_look=next_look), looks_at_pods=True, due=next_look)


def _probe(served: ServiceProgress, now: float) -> ServiceAction:
    """Send health checks to the remaining endpoints, or become ready if all passed."""
    ours = frozenset(i for i, endpoint in enumerate(served.plan.endpoints) if not endpoint.address)
    if served.healthy >= ours:
        return ServiceAction(_ready(served))
    if now < served.next_probe:
        return ServiceAction(served, due=served.next_probe)
    asks = ours - served.healthy - served.asking
    return ServiceAction(
        replace(served, asking=served.asking | asks), asks=tuple(sorted(asks))
    )  # the response wakes the watch


def _ready(served: ServiceProgress) -> ServiceProgress:
    if served.ready:
        return served
    untroubled = replace(served, blocked=NO_TROUBLE, trouble=NO_TROUBLE, trouble_since=None, crash=NO_TROUBLE)
    return replace(untroubled, ready=True, next_look=None)


def _unready(served: ServiceProgress) -> ServiceProgress:
    return replace(served, ready=False, healthy=frozenset())


def _held_against(
    served: ServiceProgress, trouble: ReadinessProblem, timing: ClusterTiming, now: float
) -> ServiceProgress:
    """Return the state with the present trouble, if any; failed if it outlasts the patience."""
    if not trouble or trouble.may_pass:
        return replace(served, trouble=trouble, trouble_since=None)
    since = now if served.trouble_since is None else served.trouble_since
    failure = served.failure
    if now - since >= timing.patience:
        service = served.plan.endpoints[0].id
        failure = f"{service} did not become ready within {timing.patience:g} s: {trouble.words}"
    return replace(served, trouble=trouble, trouble_since=since, failure=failure)
