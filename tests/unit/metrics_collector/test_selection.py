from __future__ import annotations

from pathlib import Path

import pytest

from metrics_collector.arguments import parse_arguments
from metrics_collector.pod_settings import PodSettings
from metrics_collector.selection import kind_of, select

HEAD = ["-t", "demo", "-m", "loss", "-s-db", "db:6789"]


@pytest.mark.parametrize(
    ("flags", "kind"),
    [
        pytest.param(["-path", "{}/metrics.log", "-format", "TEXT"], "File", id="StdOut and File"),
        pytest.param(["-path", "{}/metrics.log", "-format", "JSON"], "File", id="JSON"),
        pytest.param(["-path", "{}"], "TensorFlowEvent", id="directory"),
        pytest.param(["-path", "{}/logs"], "TensorFlowEvent", id="directory that comes later"),
        pytest.param(["-path", "{}/there.log"], "File", id="file without format"),
        pytest.param(["-path", "{}/metrics.log", "-f", "(a)=(b)"], "File", id="file with filter"),
        pytest.param([], "PrometheusMetric", id="nothing"),
    ],
)
def test_katibs_flags_tell_the_kind(tmp_path: Path, flags: list[str], kind: str) -> None:
    (tmp_path / "there.log").touch()
    arguments = parse_arguments([*HEAD, *(flag.format(tmp_path) for flag in flags)])

    assert kind_of(arguments, PodSettings()) == kind


def test_our_controller_says_the_kind(tmp_path: Path) -> None:
    pod = PodSettings.of({"KATIB_COLLECTOR_KIND": "TensorFlowEvent"})
    (tmp_path / "there.log").touch()

    assert kind_of(parse_arguments([*HEAD, "-path", f"{tmp_path}/there.log"]), pod) == "TensorFlowEvent"


def test_markers_are_beside_a_file_in_a_directory_and_where_we_are_told(tmp_path: Path) -> None:
    def directory(*flags: str, **environment: str) -> Path | None:
        arguments = parse_arguments([*HEAD, *flags])
        return select(arguments, PodSettings.of(environment), lambda _data: None).directory

    assert directory("-path", f"{tmp_path}/x.log", "-format", "TEXT") == tmp_path
    assert directory("-path", str(tmp_path)) == tmp_path
    assert directory() is None
    assert directory(KATIB_MARKER_DIRECTORY="/var/log/katib") == Path("/var/log/katib")
