"""The recipes of CONTRIBUTING.md, followed to the letter on a copy of the tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.cli import environment
from tests.support.experiments import a_double, a_job, a_template, an_experiment

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^```\w+\n# (?:new file (?P<new>\S+)|(?P<old>\S+), (?P<side>below|above): *(?P<line>[^\n]*))\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def apply_recipes(root: Path) -> None:
    """Do what the blocks of the page say."""
    for block in BLOCK.finditer((ROOT / "CONTRIBUTING.md").read_text()):
        if block["new"]:
            (root / block["new"]).parent.mkdir(exist_ok=True)
            (root / block["new"]).write_text(block["text"])
            continue
        lines = (root / block["old"]).read_text().splitlines(keepends=True)
        (place,) = [i for i, line in enumerate(lines) if line.strip() == block["line"].strip()]
        lines.insert(place + (block["side"] == "below"), block["text"])
        (root / block["old"]).write_text("".join(lines))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which all recipes were followed."""
    copy = tmp_path_factory.mktemp("tree")
    for part in ("katib", "suggestion_services", "metrics_collector", "manifests"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    apply_recipes(copy)
    return copy


def python(tree: Path, program: str, *arguments: str, cwd: Path) -> str:
    """Run a program with the packages of the copy."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env=environment(PYTHONPATH=str(tree)),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def katib(tree: Path, *arguments: str, cwd: Path) -> str:
    return python(tree, "import sys; from katib.doors.cli import main; sys.exit(main())", *arguments, cwd=cwd)


def test_a_command(tree: Path, tmp_path: Path) -> None:
    assert katib(tree, "where", cwd=tmp_path) == f"{tree / 'katib'}\n"
    assert "where katib is installed" in katib(tree, "--help", cwd=tmp_path)


def test_a_verb(tree: Path, tmp_path: Path) -> None:
    program = """
from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server
from katib.places.machine import open_offline
import sys
from pathlib import Path

service = open_offline(Path(sys.argv[1]))
with Server(service, host="127.0.0.1", port=0) as server, HttpTuningService(server.url) as client:
    print(client.count_trials("default", "demo"))
"""
    directory = tmp_path / "data"
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(an_experiment(maxTrialCount=2)))
    katib(tree, "run", "demo.yaml", "--data-dir", str(directory), cwd=tmp_path)

    assert python(tree, program, str(directory), cwd=tmp_path) == "2\n"


def test_an_algorithm_and_a_source_of_metrics(tree: Path, tmp_path: Path) -> None:
    job = a_job("echo loss,${trialParameters.learningRate} > /recipes/metrics.csv")
    raw = an_experiment(
        algorithm={"algorithmName": "halton"},
        parameters=[a_double("lr", low="0", high="1")],
        maxTrialCount=3,
        parallelTrialCount=1,
        trialTemplate=a_template(trialSpec=job),
        metricsCollectorSpec={
            "collector": {"kind": "File"},
            "source": {"fileSystemPath": {"kind": "File", "path": "/recipes/metrics.csv", "format": "CSV"}},
        },
    )
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(raw))

    katib(tree, "run", "x.yaml", "-q", cwd=tmp_path)
    trials = yaml.safe_load(katib(tree, "trials", "demo", "-o", "json", cwd=tmp_path))["items"]

    readings = [trial["status"]["observation"]["metrics"][0]["latest"] for trial in trials]
    assert sorted(map(float, readings)) == [0.25, 0.5, 0.75]
    assert [trial["spec"]["parameterAssignments"][0]["value"] for trial in trials] == readings
    assert "halton" in str(yaml.safe_load((tree / "manifests/components/config/katib-config.yaml").read_text()))


def test_a_kind_of_job(tree: Path, tmp_path: Path) -> None:
    program = """
from katib.model.job_kinds import known_kind
kind = known_kind({"apiVersion": "ray.io/v1", "kind": "RayJob"})
print(kind.success, *kind.primary_pod_labels)
"""

    assert python(tree, program, cwd=tmp_path) == "Succeeded ray.io/node-type\n"
    roles = [*yaml.safe_load_all((tree / "manifests/components/rbac/controller-jobs.yaml").read_text())]
    rules = [rule for role in roles for rule in role.get("rules", ()) if rule["apiGroups"] == ["ray.io"]]
    assert [rule["resources"] for rule in rules] == [["rayjobs"]]
