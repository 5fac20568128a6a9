"""From a container's output to the observation log. The trials are in a dictionary: all an informer is here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Queue
from typing import Any, cast

import pytest
from msgspec import structs

from katib.engine.runtime.objects import Key, Object
from katib.model.types import (
    CollectorSpec,
    FileSystemPath,
    FilterSpec,
    MetricsCollectorSpec,
    ObjectiveSpec,
    SourceSpec,
    Trial,
)
from katib.places.machine.pods.output import Monitor
from katib.places.machine.trials.monitors import METRICS_DIRECTORY, TrialMonitors
from metrics_collector.reporter import Reporter
from tests.support.clock import VirtualClock
from tests.support.controllers import RecordedEvents
from tests.support.event_records import scalar, write
from tests.support.golden import Golden
from tests.support.observations import MemoryObservationLog
from tests.support.planning import trial
from tests.support.scrapes import exporter

OBJECTIVE = ObjectiveSpec(type="minimize", objective_metric_name="loss", additional_metric_names=("acc",))
PATH = "/var/log/katib/metrics.log"
PRIMARY = {"role": "master"}


def collector(kind: str, *, path: str = "", file_format: str = "", filters: tuple[str, ...] = ()) -> Any:
    place = FileSystemPath(path=path, kind="File", format=file_format) if path else None
    source = SourceSpec(file_system_path=place, filter=FilterSpec(metrics_format=filters) if filters else None)
    return MetricsCollectorSpec(source=source, collector=CollectorSpec(kind=kind))


class Bench:
    """Monitors with everything around them real but the informer."""

    def __init__(self) -> None:
        self.trials: dict[Key, Trial] = {}
        self.log = MemoryObservationLog()
        self.reporter = Reporter(self.log.report, report_all=self.log.report_all)
        self.events = RecordedEvents()
        self.monitors = TrialMonitors(cast(Any, self.trials), self.reporter, self.log, self.events, VirtualClock())

    def job(self, metrics: MetricsCollectorSpec | None = None, **spec: Any) -> Object:
        """Return the job of a trial with this collector."""
        spec.setdefault("primary_container_name", "main")
        made = trial("demo-1", objective_spec=OBJECTIVE, metrics_collector=metrics or collector("StdOut"), **spec)
        self.trials[Key("default", "demo-1")] = made
        owner = {"apiVersion": "kubeflow.org/v1beta1", "kind": "Trial", "name": "demo-1", "uid": made.metadata.uid}
        return {
            "metadata": {"name": "demo-1", "namespace": "default", "ownerReferences": [owner | {"controller": True}]}
        }

    def close(self, monitor: Monitor) -> str:
        """Close a monitor and return its report once all is stored."""
        reports: list[str] = []
        told = threading.Event()

        def done(report: str) -> None:
            reports.append(report)
            told.set()

        monitor.close(done)
        assert told.wait(60)
        return reports[0]

    def values(self, metric: str = "loss") -> list[str]:
        return [reading.value for reading in self.log.read("demo-1", metric_name=metric)]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.reporter.close(1)


def opened(bench: Bench, directory: Path, metrics: MetricsCollectorSpec | None = None, **spec: Any) -> Monitor:
    monitor = bench.monitors.open(bench.job(metrics, **spec), PRIMARY, "main", directory)
    assert monitor is not None
    return monitor


def test_what_a_container_prints_is_stored(bench: Bench, tmp_path: Path) -> None:
    monitor = opened(bench, tmp_path)
    monitor.feed(b"epoch 1 loss=0.5 acc=0.1\nepo")
    monitor.feed(b"ch 2 loss=0.4 acc=0.2")

    assert bench.close(monitor) == ""
    assert (bench.values(), bench.values("acc")) == (["0.5", "0.4"], ["0.1", "0.2"])


def test_filters_of_the_experiment_are_used(bench: Bench, tmp_path: Path) -> None:
    monitor = opened(bench, tmp_path, collector("StdOut", filters=(r"(\w+) is (\d+)",)))
    monitor.feed(b"loss is 7, acc is 9\nloss=5\n")
    bench.close(monitor)

    assert bench.values() == ["7"]


def test_a_metrics_file_is_followed_and_the_output_is_not_read(bench: Bench, tmp_path: Path) -> None:
    monitor = opened(bench, tmp_path, collector("File", path=PATH))
    monitor.feed(b"loss=9\n")
    monitor.poll()
    (tmp_path / METRICS_DIRECTORY / "metrics.log").write_text("loss=0.5\n")
    monitor.poll()
    with (tmp_path / METRICS_DIRECTORY / "metrics.log").open("a") as file:
        file.write("loss=0.4")
    bench.close(monitor)

    assert bench.values() == ["0.5", "0.4"]


def test_a_json_file_is_read_line_by_line(bench: Bench, tmp_path: Path) -> None:
    monitor = opened(bench, tmp_path, collector("File", path=PATH, file_format="JSON"))
    (tmp_path / METRICS_DIRECTORY / "metrics.log").write_text('{"loss": 0.25, "acc": "0.5"}\n')
    bench.close(monitor)

    assert (bench.values(), bench.values("acc")) == (["0.25"], ["0.5"])


@pytest.mark.parametrize("metadata", [{"name": "x"}, {"name": "x", "ownerReferences": []}], ids=["bare", "no owner"])
def test_a_job_of_nobody_is_not_read(bench: Bench, metadata: dict[str, Any], tmp_path: Path) -> None:
    assert bench.monitors.open({"metadata": metadata}, {}, "main", tmp_path) is None
    assert bench.monitors.collection({"metadata": metadata}, {}).rewrites == {}
    bench.monitors.discard({"metadata": metadata})


def directory(kind: str, **fields: Any) -> MetricsCollectorSpec:
    place = FileSystemPath(path="/logs", kind="Directory")
    return MetricsCollectorSpec(source=SourceSpec(file_system_path=place), collector=CollectorSpec(kind=kind, **fields))


@pytest.mark.parametrize(
    ("metrics", "path"),
    [
        (collector("File", path=PATH), "/var/log/katib"),
        (collector("StdOut"), ""),
        (directory("TensorFlowEvent"), "/logs"),
        (directory("Custom"), "/logs"),
    ],
    ids=["File", "StdOut", "TensorFlowEvent", "Custom"],
)
def test_each_trial_has_files_of_its_own_in_place_of_those_of_the_template(
    bench: Bench, metrics: MetricsCollectorSpec, path: str
) -> None:
    rewrites = {path: METRICS_DIRECTORY} if path else {}

    assert bench.monitors.collection(bench.job(metrics), {}).rewrites == rewrites


@pytest.mark.parametrize(
    ("spec", "labels", "container"),
    [
        pytest.param({}, {}, "sidecar", id="another container"),
        pytest.param({"primary_pod_labels": PRIMARY}, {"role": "worker"}, "main", id="another pod"),
        *(pytest.param({"metrics_collector": collector(k)}, {}, "main", id=k) for k in ("Push", "Custom", "None")),
    ],
)
def test_only_the_primary_container_of_a_primary_pod_is_read(
    bench: Bench, spec: dict[str, Any], labels: dict[str, str], container: str, tmp_path: Path
) -> None:
    job = bench.job(spec.get("metrics_collector"), **{k: v for k, v in spec.items() if k != "metrics_collector"})

    assert bench.monitors.open(job, labels, container, tmp_path) is None
    assert bench.monitors.open(bench.job(primary_pod_labels=PRIMARY), {**PRIMARY, "more": "x"}, "main", tmp_path)


@pytest.mark.parametrize("kind", ["StdOut", "File", "TensorFlowEvent", "PrometheusMetric", "Custom", "Push", "None"])
def test_a_program_may_push_unless_its_output_is_read(kind: str) -> None:
    bench = Bench()
    bench.monitors = TrialMonitors(
        cast(Any, bench.trials),
        bench.reporter,
        bench.log,
        bench.events,
        VirtualClock(),
        lambda name, metrics, pushes: {"STATUS": ",".join(metrics), **({"ADDRESS": name} if pushes else {})},
        {"PYTHONPATH": "adapted"},
    )
    variables = bench.monitors.collection(bench.job(collector(kind)), {}).variables
    bench.reporter.close(0)

    assert ("ADDRESS" in variables) is (kind not in {"StdOut", "None"})
    assert ("PYTHONPATH" in variables) is (kind == "Push")
    assert variables.get("STATUS") == (None if kind == "None" else "loss,acc")


def test_a_missing_objective_is_explained_in_the_report(bench: Bench, tmp_path: Path) -> None:
    monitor = opened(bench, tmp_path)
    monitor.feed(b"Loss: 0.5\n")

    assert "loss" in bench.close(monitor)


def test_a_metrics_file_that_cannot_be_read_is_named(bench: Bench, tmp_path: Path) -> None:
    monitor = opened(bench, tmp_path, collector("File", path=PATH))
    (tmp_path / METRICS_DIRECTORY / "metrics.log").mkdir()

    assert "not a regular file" in bench.close(monitor)


def test_a_missing_additional_metric_is_an_event(bench: Bench, tmp_path: Path) -> None:
    monitor = opened(bench, tmp_path)
    monitor.feed(b"loss=0.5\n")

    assert bench.close(monitor) == ""
    ((name, reason, message),) = bench.events.events
    assert (name, reason) == ("demo-1", "MetricsMissing")
    assert "acc" in message


def test_readings_of_a_run_that_was_cut_off_are_forgotten(bench: Bench, tmp_path: Path) -> None:
    monitor = opened(bench, tmp_path)
    monitor.feed(b"loss=0.5\n")
    bench.close(monitor)
    bench.monitors.discard(bench.job())

    assert bench.values() == []


def test_waiting_readings_are_told_of_their_trial_until_it_is_over(bench: Bench, tmp_path: Path) -> None:
    opened(bench, tmp_path)
    bench.monitors.readings_wait(["demo-1", "unknown"], "the disk is full")
    bench.monitors.forget("demo-1")
    bench.monitors.readings_wait(["demo-1"], "the disk is full")

    assert bench.events.events == [("demo-1", "ObservationLogUnavailable", "the disk is full")]


# --- other kinds ------------------------------------------------------------------------------------------------------


def test_a_damaged_event_file_is_told_although_the_objective_was_found(
    bench: Bench, tmp_path: Path, golden: Golden
) -> None:
    monitor = opened(bench, tmp_path, directory("TensorFlowEvent"))
    (tmp_path / METRICS_DIRECTORY).mkdir(exist_ok=True)
    events = scalar("loss", 0.5) + b"damage" + scalar("acc", 0.5)
    (tmp_path / METRICS_DIRECTORY / "events.out.tfevents.1").write_bytes(events)

    golden(bench.close(monitor))
    ((_, reason, message),) = bench.events.events
    assert reason == "MetricsMissing"
    assert "1 damaged place" in message


def test_a_custom_collector_goes_with_primary_pods_only(bench: Bench) -> None:
    job = bench.job(directory("Custom", custom_collector={"name": "mine"}), primary_pod_labels=PRIMARY)

    assert [container for _, container in bench.monitors.collection(job, PRIMARY).companions] == [{"name": "mine"}]
    assert not bench.monitors.collection(job, {"role": "worker"}).companions
    assert not bench.monitors.collection(bench.job(), PRIMARY).companions


def test_every_trial_with_an_endpoint_has_a_port_of_its_own(bench: Bench) -> None:
    job = bench.job(collector("PrometheusMetric"))

    assert bench.monitors.collection(job, {}).variables["KATIB_METRICS_PORT"].isdecimal()
    assert "KATIB_METRICS_PORT" not in bench.monitors.collection(bench.job(), {}).variables


def test_an_answer_that_is_under_way_when_the_program_ends_is_stored(bench: Bench, tmp_path: Path) -> None:
    asked, answers = threading.Event(), threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.set()
        answers.wait(60)
        request.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nloss 0.5\n")

    with exporter() as program:
        program.respond = answer
        metrics = collector("PrometheusMetric")
        http_get = {"host": "127.0.0.1", "port": program.port}
        metrics = structs.replace(metrics, source=SourceSpec(http_get=http_get))
        monitor = opened(bench, tmp_path, metrics)
        monitor.poll()
        assert asked.wait(60)
        reports: Queue[str] = Queue()
        monitor.close(reports.put)
        answers.set()

        reports.get(timeout=60)
    assert bench.values() == ["0.5"]


def test_events_are_read_as_the_directory_of_the_template(bench: Bench, tmp_path: Path) -> None:
    job = bench.job(directory("TensorFlowEvent"))
    (key, made), *_ = bench.trials.items()
    objective = structs.replace(OBJECTIVE, objective_metric_name="logs/part0/loss")
    bench.trials[key] = structs.replace(made, spec=structs.replace(made.spec, objective=objective))
    monitor = bench.monitors.open(job, PRIMARY, "main", tmp_path)
    assert monitor is not None
    (tmp_path / METRICS_DIRECTORY).mkdir()
    write(str(tmp_path / METRICS_DIRECTORY), [0.5])
    monitor.poll()

    assert bench.close(monitor) == ""
    assert bench.values("logs/part0/loss") == ["0.5"]


def test_a_monitor_that_reads_everything_again_stores_what_is_new(bench: Bench, tmp_path: Path) -> None:
    first = opened(bench, tmp_path)
    first.feed(b"loss=0.5 acc=0.1\nloss=0.5 acc=0.2\nloss=0.4")
    bench.close(first)
    monitors = TrialMonitors(cast(Any, bench.trials), bench.reporter, bench.log, bench.events, VirtualClock())
    job = bench.job()
    monitors.resume(job)
    monitor = monitors.open(job, PRIMARY, "main", tmp_path)
    assert monitor is not None

    monitor.feed(b"loss=0.5 acc=0.1\nloss=0.5 acc=0.2\nloss=0.4")
    monitor.feed(b" acc=0.3\nloss=0.5 acc=0.1\n")

    assert bench.close(monitor) == ""
    assert (bench.values(), bench.values("acc")) == (["0.5", "0.5", "0.4", "0.5"], ["0.1", "0.2", "0.3", "0.1"])


@pytest.mark.parametrize(
    ("kind", "lasts"),
    [
        *(("StdOut", True), ("File", True), ("TensorFlowEvent", True), ("None", True)),
        *(("Push", False), ("PrometheusMetric", False), ("Custom", False)),
    ],
)
def test_pods_outlive_an_engine_where_all_that_they_report_is_written_down(
    bench: Bench, kind: str, lasts: bool
) -> None:
    assert bench.monitors.may_outlive(bench.job(collector(kind))) is lasts


@pytest.mark.parametrize(
    ("keeps", "outputs", "counted", "set_aside"),
    [
        pytest.param(False, ["loss=0.1", "loss=0.5"], ["0.5"], ["0.1"], id="again"),
        pytest.param(True, ["loss=0.1", "loss=0.5"], ["0.1", "0.5"], [], id="a checkpoint"),
        pytest.param(
            False,
            ["katib-step=1 loss=0.1\nkatib-step=2 loss=0.2", "katib-step=2 loss=0.3"],
            ["0.1", "0.3"],
            [],
            id="a later step",
        ),
        pytest.param(
            True, ["katib-step=1 loss=0.1", "katib-step=1 loss=0.3"], ["0.3"], ["0.1"], id="a checkpoint not read"
        ),
        pytest.param(False, ["loss=0.1", ""], [], ["0.1"], id="nothing"),
    ],
)
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "another pod"])
def test_what_a_failed_try_reported_is_set_aside_unless_the_next_one_goes_on(
    in_place: bool,
    keeps: bool,
    outputs: list[str],
    counted: list[str],
    set_aside: list[str],
    bench: Bench,
    tmp_path: Path,
) -> None:
    bench.monitors.keeps_checkpoint = lambda _job: keeps
    monitor = opened(bench, tmp_path)
    for place, output in enumerate(outputs):
        if place and in_place:
            flushed = threading.Event()
            bench.reporter.flush("demo-1", flushed.set)
            assert flushed.wait(60)
            monitor.begin_again()
        elif place:
            bench.close(monitor)
            bench.monitors.try_again(bench.job(), [PRIMARY], [])
            monitor = opened(bench, tmp_path)
        monitor.feed(output.encode() + b"\n")
    bench.close(monitor)

    assert bench.values() == counted
    assert [reading.value for reading in bench.log.read("demo-1.1")] == set_aside


def test_pods_that_report_side_by_side_are_one_series(bench: Bench, tmp_path: Path) -> None:
    job = bench.job()
    first, second = opened(bench, tmp_path), opened(bench, tmp_path)
    first.feed(b"loss=0.1\n")
    second.feed(b"loss=0.2\n")
    bench.close(first)
    bench.monitors.try_again(job, [PRIMARY], [PRIMARY])
    again = opened(bench, tmp_path)
    again.feed(b"loss=0.3\n")
    bench.close(second)
    bench.close(again)

    assert sorted(bench.values()) == ["0.1", "0.2", "0.3"]
