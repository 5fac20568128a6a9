"""The modules that a run imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from katib.doors.cli.run import following
from katib.engine.algorithm_services import refusals
from katib.engine.controllers import assembly, ledger
from katib.engine.controllers.experiment import reconciler
from katib.engine.controllers.suggestion import reconciler as suggestion_reconciler
from katib.engine.observations import quick, sqlite_tables
from katib.model import loading
from katib.model.loadable import Loadable
from katib.places.machine import on_demand, sites
from katib.places.machine.jobs import kinds
from katib.places.machine.trials import monitors
from katib.service.tuning import stored_service, submission
from tests.support.experiments import an_experiment

MOST_MODULES, MOST_LINES = 253, 41_500

COUNTED = """
import json, sys
from katib.doors.cli import main
try:
    main()
finally:
    ours = ("katib", "metrics_collector", "suggestion_services")
    found = [module.__file__ for name, module in list(sys.modules.items()) if name.partition(".")[0] in ours]
    lines = [len(open(path).read().splitlines()) for path in found if path]
    names = sorted(name for name in sys.modules if name.partition(".")[0] in (*ours, "sqlalchemy"))
    print(json.dumps([len(lines), sum(lines), names]))
"""

RARE = (
    "containers.choice",
    "explaining.diagnostician",
    "jobset",
    "optimization_job",
    "replicated",
    "slurm",
    "asking",
    "sqlalchemy",
)
"""Parts of names of modules that a plain run has no use for."""


def test_a_plain_run_imports_no_more_than_it_uses(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text(json.dumps(an_experiment(maxTrialCount=2)))

    done = subprocess.run(
        [sys.executable, "-c", COUNTED, "run", "e.json", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    modules, lines, names = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in names if any(part in name for part in RARE)] == []
    assert modules <= MOST_MODULES
    assert lines <= MOST_LINES


def loadables() -> Iterator[Loadable[object]]:
    for module in (
        assembly,
        following,
        kinds,
        ledger,
        loading,
        monitors,
        on_demand,
        quick,
        reconciler,
        refusals,
        sites,
        sqlite_tables,
        stored_service,
        submission,
        suggestion_reconciler,
    ):
        yield from (value for value in vars(module).values() if isinstance(value, Loadable))
    yield from (part for _, part in (*kinds._LISTED, *sites.SITES))


@pytest.mark.parametrize("part", sorted(set(loadables()), key=lambda part: part.path), ids=lambda part: part.path)
def test_every_part_that_is_imported_late_is_there(part: Loadable[object]) -> None:
    assert part.load() is not None
