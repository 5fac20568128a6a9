"""What goes into the container images."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.images import NAMES, TAG, reference

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ROOT / "images"

LEFT_OUT = {
    # The asynchronous half of the client, which is cut off in the image.
    "controller": {"aiohttp", "aiohttp-retry"},
    # Optuna's databases: services keep their studies in memory.
    "suggestion": {"alembic", "sqlalchemy"},
    # Time zones come from the base image, and nobody asks for another one than UTC.
    "db-manager": {"tzdata"},
}
EVERYWHERE = {"tzdata"}

RUN = {
    "metrics-collector": """
        import metrics_collector.__main__
        import_all("metrics_collector")
        import katib.wire.rpc.db_manager_client
    """,
    "early-stopping": """
        import_all("suggestion_services.medianstop")
        import_all("suggestion_services.early_stopping")
        for name in ("medianstop", "asha", "hyperband", "median", "wilcoxon", "patience", "threshold"):
            serve(name, early_stopping=True)
    """,
    "suggestion": """
        import_all("suggestion_services.enas")
        import_all("suggestion_services.darts")
        for name in (
            *("random", "grid", "tpe", "multivariate-tpe", "motpe", "bayesianoptimization", "gp", "cmaes", "sobol"),
            *("auto", "hyperband", "bohb", "asha", "pbt", "nsga2"),
        ):
            serve(name)
        import_all("suggestion_services.enas")
        import_all("suggestion_services.darts")
    """,
    "db-manager": """
        import katib.doors.cli.app, katib.doors.cli.db_manager, katib.places.cluster.db_manager, pg8000.dbapi, pymysql
        import_all("katib.engine.databases")
        import_all("katib.engine.observations")
        import uvicorn, katib.wire.serving.prompt_server, uvicorn.protocols.http.h11_impl
    """,
    "controller": """
        import katib.doors.cli.app, katib.doors.cli.controller, katib.doors.cli.serve
        for room in ("places.cluster", "doors.rest", "wire.serving"):
            import_all(f"katib.{room}")
    """,
}
"""What the process of each image does first, as far as it imports something."""

PRELUDE = """
import importlib, importlib.metadata, pkgutil, re, sys, textwrap

allowed = {re.sub("[-_.]+", "-", name).lower() for name in sys.argv[1].split(",")} | {"katib"}
owners = importlib.metadata.packages_distributions()
foreign = {
    module for module, names in owners.items()
    if not allowed & {re.sub("[-_.]+", "-", name).lower() for name in names}
}
foreign.discard("tests")  # ours, whose requests `serve` sends; some packages have modules of that name

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in foreign:
            raise ModuleNotFoundError(f"No module named {name!r} in this image", name=name)

sys.meta_path.insert(0, Missing())

def import_all(package):
    elsewhere = "katib.places.cluster.db_manager"  # the other image's
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if module.name != elsewhere:
            importlib.import_module(module.name)

def serve(name, early_stopping=False):
    from katib.wire.rpc._generated import api_pb2 as pb
    from katib.wire.rpc.services import calls_over
    from tests.support.suggestion import a_parameter, a_trial, an_experiment, served_here

    halving = {"r_l": "1", "resource_name": "lr", "s_max": "1"}
    required = dict.fromkeys(("hyperband", "bohb", "asha"), halving)
    required["pbt"] = {"suggestion_trial_dir": "s3://bucket/population"}
    parameters = [a_parameter(parameter, min="0", max="1", step="0.1") for parameter in ("lr", "momentum")]
    experiment = an_experiment(name, parameters, settings=required.get(name), max_trial_count=11)
    trials = [  # more than any algorithm draws at random
        a_trial(f"t{i}", {"lr": str(i / 20), "momentum": str(i / 20)}, i / 20) for i in range(12)
    ]
    with served_here(name, early_stopping=early_stopping) as service:
        if early_stopping:
            experiment.spec.early_stopping.algorithm_name = name
            request = pb.GetEarlyStoppingRulesRequest(experiment=experiment)
            calls_over(service.channel, pb).GetEarlyStoppingRules(request)
        else:
            service.ask(experiment, trials)

import importlib.abc
exec(textwrap.dedent(sys.argv[2]))
"""


def listed(name: str) -> list[str]:
    lines = (IMAGES / name / "requirements.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def instructions(name: str) -> list[list[str]]:
    """Return the instructions of a Dockerfile, with continued lines joined."""
    text = re.sub(r"\\\n", " ", (IMAGES / name / "Dockerfile").read_text())
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


def stage(name: str, called: str) -> list[list[str]]:
    """Return the instructions of one stage of a Dockerfile."""
    found: dict[str, list[list[str]]] = {}
    inside = ""
    for word, what in instructions(name):
        if word == "FROM":
            inside = what.rpartition(" AS ")[2]
        found.setdefault(inside, []).append([word, what])
    return found[called]


def test_there_is_a_folder_for_every_image_and_nothing_else() -> None:
    assert sorted(path.name for path in IMAGES.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_package_has_a_version_and_brings_what_it_needs(name: str) -> None:
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    here = {canonicalize_name(package) for package in listed(name)}
    missing = set()
    for package in here:
        for text in requires(package) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                missing.add(canonicalize_name(requirement.name))

    assert here <= {canonicalize_name(package) for package in pinned}
    assert missing - here - EVERYWHERE <= LEFT_OUT.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_the_process_of_an_image_imports_nothing_that_is_not_in_it(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE, ",".join(listed(name)), RUN[name]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_no_root_and_starts_from_the_same_base(name: str) -> None:
    found = instructions(name)
    last = max(i for i, instruction in enumerate(found) if instruction[0] == "FROM")

    assert found[0] == ["ARG", "BASE=docker.io/library/python:3.11-slim"]
    assert [what for word, what in found if word == "FROM"] == [
        "${BASE} AS environment",
        "environment AS code",
        "environment AS packages",
        *(["${BASE} AS launcher"] if name == "metrics-collector" else []),
        "${BASE}",
    ]
    assert ["USER", "1000:1000"] in found[last:]
    assert not [what for word, what in found[last:] if word in {"RUN", "ADD"}]


@pytest.mark.parametrize("name", NAMES)
def test_a_change_of_our_code_installs_no_packages_again(name: str) -> None:
    packages = [f"{word} {what}" for word, what in stage(name, "packages")]

    assert [line for line in packages if "--requirement" in line]
    assert not [line for line in packages if line.startswith("COPY") and "requirements.txt" not in line]


def test_the_stage_of_our_code_is_the_same_in_all_images() -> None:
    """So a builder that keeps layers makes it once."""
    first, *others = [(stage(name, "environment"), stage(name, "code")) for name in NAMES]

    assert first[1]
    assert all(other == first for other in others)


def test_manifests_use_the_images_that_are_built() -> None:
    used = set()
    for path in (ROOT / "manifests").rglob("*.yaml"):
        used |= set(re.findall(r"image: (katib/\S+)", path.read_text()))

    assert used == {reference(name) for name in NAMES}
    assert all(image.endswith(f":{TAG}") for image in used)
