"""Requests to suggestion services, services to send them to, and functions to search."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import grpc

from katib.model.names import trial_name
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import health_pb2
from katib.wire.rpc.services import calls_over
from suggestion_services.algorithms import find_entry
from suggestion_services.base.servicer import EXHAUSTED_METADATA, WAITING_METADATA
from suggestion_services.server import start_server

PATIENCE_SECONDS = 60.0

REQUIRED: dict[str, dict[str, object]] = {"pbt": {"suggestion_trial_dir": "/checkpoints"}}
"""Settings without which an algorithm refuses every experiment."""

Assignments = dict[str, str]
Status = pb.TrialStatus


def a_parameter(name: str, kind: int = pb.DOUBLE, **space: object) -> pb.ParameterSpec:
    """Return a parameter of type double between 0 and 1, unless told otherwise (`min="1"`, `list=["a"]`)."""
    if kind in (pb.DOUBLE, pb.INT) and not space:
        space = {"min": "0", "max": "1"}
    return pb.ParameterSpec(name=name, parameter_type=kind, feasible_space=pb.FeasibleSpace(**space))  # type: ignore[arg-type]  # fields by name


def an_experiment(
    algorithm: str,
    parameters: Sequence[pb.ParameterSpec] = (),
    *,
    name: str = "demo",
    settings: Mapping[str, object] | None = None,
    maximize: bool = False,
    max_trial_count: int = 0,
) -> pb.Experiment:
    """Return an experiment that searches two doubles for the least loss, unless told otherwise."""
    chosen = {**REQUIRED.get(algorithm, {}), **(settings or {})}
    return pb.Experiment(
        name=name,
        spec=pb.ExperimentSpec(
            parameter_specs=pb.ExperimentSpec.ParameterSpecs(
                parameters=parameters or [a_parameter("x"), a_parameter("y")]
            ),
            objective=pb.ObjectiveSpec(type=pb.MAXIMIZE if maximize else pb.MINIMIZE, objective_metric_name="loss"),
            algorithm=pb.AlgorithmSpec(
                algorithm_name=algorithm,
                algorithm_settings=[pb.AlgorithmSetting(name=key, value=str(value)) for key, value in chosen.items()],
            ),
            max_trial_count=max_trial_count,
        ),
    )


def a_trial(
    name: str,
    assignments: Mapping[str, str],
    loss: object = None,
    condition: int = Status.SUCCEEDED,
    *,
    labels: Mapping[str, str] | None = None,
    **status: str,
) -> pb.Trial:
    """Return a trial; without a loss its observation is empty."""
    metrics = [] if loss is None else [pb.Metric(name="loss", value=str(loss))]
    return pb.Trial(
        name=name,
        spec=pb.TrialSpec(
            objective=pb.ObjectiveSpec(objective_metric_name="loss"),
            parameter_assignments=pb.TrialSpec.ParameterAssignments(
                assignments=[pb.ParameterAssignment(name=key, value=value) for key, value in assignments.items()]
            ),
            labels=labels,
        ),
        status=pb.TrialStatus(condition=condition, observation=pb.Observation(metrics=metrics), **status),  # type: ignore[arg-type]  # fields by name
    )


@dataclass
class Service:
    """A service behind a channel."""

    channel: grpc.Channel
    exhausted: bool = field(default=False, init=False)
    waits: bool = field(default=False, init=False)
    reply: pb.GetSuggestionsReply = field(default_factory=pb.GetSuggestionsReply, init=False)
    """The last one, as `exhausted` and `waits`."""

    @property
    def labels(self) -> list[dict[str, str]]:
        """Of the trials of the last reply."""
        return [dict(one.labels) for one in self.reply.parameter_assignments]

    def ask(
        self, experiment: pb.Experiment, trials: Sequence[pb.Trial] = (), *, count: int = 1, first: int | None = None
    ) -> list[Assignments]:
        """Return assignments; `first` is how many were given before, the number of trials unless told otherwise."""
        given = len(trials) if first is None else first
        request = pb.GetSuggestionsRequest(
            experiment=experiment,
            trials=trials,
            current_request_number=count,
            total_request_number=given + count,
            takes_fewer=True,
        )
        return self.send(request)

    def send(self, request: pb.GetSuggestionsRequest) -> list[Assignments]:
        """Return the assignments of the reply to a raw request."""
        stub = calls_over(self.channel, pb)
        self.reply, call = stub.GetSuggestions.with_call(request, timeout=PATIENCE_SECONDS)
        metadata = [tuple(pair) for pair in call.trailing_metadata()]
        self.exhausted, self.waits = EXHAUSTED_METADATA in metadata, WAITING_METADATA in metadata
        return [{a.name: a.value for a in one.assignments} for one in self.reply.parameter_assignments]

    def validate(self, experiment: pb.Experiment) -> None:
        """Ask whether the service accepts the experiment; raises grpc.RpcError when it does not."""
        request = pb.ValidateAlgorithmSettingsRequest(experiment=experiment)
        calls_over(self.channel, pb).ValidateAlgorithmSettings(request, timeout=PATIENCE_SECONDS)

    def health(self, service: str = "") -> int:
        """Return the health status, waiting for the server to come up."""
        request = health_pb2.HealthCheckRequest(service=service)
        stub = calls_over(self.channel, health_pb2)
        return stub.Check(request, timeout=PATIENCE_SECONDS, wait_for_ready=True).status  # type: ignore[no-any-return]  # stubs without types

    def search(
        self, experiment: pb.Experiment, objective: Callable[[Assignments], object], *, budget: int, parallel: int = 1
    ) -> list[pb.Trial]:
        """Run an experiment, with names as the product: ask, evaluate, tell, until its budget or space is used up."""
        trials: list[pb.Trial] = []
        while len(trials) < budget:
            points = self.ask(experiment, trials, count=min(parallel, budget - len(trials)))
            first = len(trials)
            trials += [
                a_trial(trial_name("", experiment.name, first + i), p, objective(p), labels=self.labels[i])
                for i, p in enumerate(points)
            ]
            if self.exhausted:
                break
        return trials


def assignments_of(trials: Sequence[pb.Trial]) -> list[Assignments]:
    """Return the assignments of trials."""
    return [{a.name: a.value for a in t.spec.parameter_assignments.assignments} for t in trials]


@contextmanager
def served_here(algorithm: str, *, early_stopping: bool = False) -> Iterator[Service]:
    """Serve an algorithm in this process, over real gRPC."""
    server, port = start_server((find_entry(algorithm, early_stopping=early_stopping),), "127.0.0.1:0")
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Service(channel)
    finally:
        server.stop(None)


@contextmanager
def each_served_here() -> Iterator[Callable[[str], Service]]:
    """Serve every algorithm that is asked for in this process, each once."""
    with ExitStack() as stack:
        yield cache(lambda algorithm: stack.enter_context(served_here(algorithm)))


@contextmanager
def start_apart(algorithm: str, folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], Service]]:
    """Serve an algorithm, and more of them, in another process, on a Unix socket, and return the process, too."""
    address = f"unix:{folder}/{algorithm}.sock"
    which = [word for name in (algorithm, *more) for word in ("--algorithm", name)]
    command = [sys.executable, "-m", "suggestion_services", *which, "--address", address]
    with subprocess.Popen([*command, "--exit-with-stdin"], stdin=subprocess.PIPE) as process:
        try:
            with grpc.insecure_channel(address, [("grpc.max_reconnect_backoff_ms", 50)]) as channel:
                service = Service(channel)
                service.health()
                yield process, service
        finally:
            process.terminate()


@contextmanager
def served_apart(algorithm: str, folder: Path, *more: str) -> Iterator[Service]:
    """Serve an algorithm, and more of them, in another process, on a Unix socket."""
    with start_apart(algorithm, folder, *more) as (_, service):
        yield service
