"""A job of any kind on a virtual clock: the plan decides, the test says how pods end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from katib.places.machine.jobs.conditions import end_of
from katib.places.machine.jobs.kind import JobTime, ObservedJob, Plan, PodStart
from katib.places.machine.pods.records import ContainerExit, Delays, PodPhase, PodRecord

START = datetime(2024, 1, 1, tzinfo=UTC)


class PlannedJob:
    """Starts what the plan says, stops it at once, and ends pods as the test says.

    Args:
        job: The object without its status.
        plan: Decides.
        container: Whose exit decides.
        delays: How long failures make wait.
    """

    def __init__(
        self,
        job: dict[str, Any],
        plan: Callable[[ObservedJob], Plan],
        container: str = "main",
        delays: Delays | None = None,
    ) -> None:
        self.job = job
        self.container = container
        self.status: dict[str, Any] = {}
        self.memory: Mapping[str, Any] = {}
        self.pods: list[PodRecord] = []
        self.started: list[PodStart] = []
        self.starts: list[float] = []  # when they started
        self.emptied: list[int] = []  # how many pods there had been whenever their readings were thrown away
        self.rewired: list[int] = []  # likewise, whenever they got other ports
        self.now = START
        self.wall_jump = timedelta()  # how far the wall clock was set
        self.polite = True  # stopped pods end at once
        self.deleted = False
        self._decide = plan
        self._delays = delays or Delays()
        self._started_at: datetime | None = None

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.job["spec"]
        return spec

    @property
    def unstopped(self) -> list[PodRecord]:
        """The pods that run and were not asked to end."""
        return [p for p in self.pods if not p.is_finished and not p.stopping]

    @property
    def is_over(self) -> bool:
        return end_of(self.status) is not None

    def name_of(self, _start: PodStart) -> str:
        """Return the name of a pod that starts."""
        return f"p{len(self.pods)}"

    def plan(self) -> Plan:
        moment = JobTime(self.now + self.wall_jump, self.now)
        job = {**self.job, "status": self.status}
        return self._decide(ObservedJob(job, tuple(self.pods), moment, self._delays, self._started_at, self.memory))

    def step(self) -> Plan:
        """Plan and act until nothing changes."""
        for _ in range(100):
            decision = self.plan()
            self.status, self._started_at, self.memory = decision.status, decision.started_at, decision.memory
            self.deleted = decision.delete
            self.emptied += [len(self.pods)] * decision.restarts_log
            self.rewired += [len(self.pods)] * decision.new_addresses
            for start in decision.start:
                self.pods.append(PodRecord(self.name_of(start), start.index, PodPhase.RUNNING, role=start.role))
                self.started.append(start)
                self.starts.append((self.now - START).total_seconds())
            for name in decision.stop:
                self._change(name, stopping=True)
                if self.polite:
                    self._change(name, phase=PodPhase.FAILED, finished_at=self.now)
            is_due = decision.wake_at is not None and decision.wake_at <= self.now
            if not decision.start and not decision.stop and not is_due:
                return decision
        raise AssertionError("the plan does not come to rest")

    def finish(self, pod: PodRecord, code: int, *, lost: bool = False, container: str = "", **changes: Any) -> None:
        """End a pod."""
        exit_ = ContainerExit(container or self.container, code, f"exited with {code}", lost)
        message = f'container "{exit_.container}" of pod {pod.name} {exit_.text}' if code else ""
        phase = PodPhase.FAILED if code else PodPhase.SUCCEEDED
        self._change(pod.name, phase=phase, finished_at=self.now, exits=(exit_,), message=message, **changes)

    def change(self, name: str, **changes: Any) -> None:
        """Change the newest pod of a name, and step."""
        self._change(name, **changes)
        self.step()

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.step()

    def advance_to_wake(self) -> None:
        wake_at = self.plan().wake_at
        assert wake_at is not None
        self.now = wake_at
        self.step()

    def conditions(self) -> list[tuple[str, str]]:
        """Return what holds; `message` has what is said of retries."""
        held = [c for c in self.status.get("conditions", []) if c["status"] == "True"]
        return [(c["type"], c["reason"]) for c in held if c["type"] != "Retrying"]

    def message(self, type_: str = "") -> str:
        """Return the message of the condition of a type, or of the last one."""
        return str([c["message"] for c in self.status["conditions"] if not type_ or c["type"] == type_][-1])

    def _change(self, name: str, **changes: Any) -> None:
        number = max(i for i, pod in enumerate(self.pods) if pod.name == name)
        self.pods[number] = replace(self.pods[number], **changes)
