"""Errors are a promise to users: each origin is explained, and none is explained that does not exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "errors.md"
DOCUMENTED_ROOMS = (
    "api",
    "templates",
    "local/jobs/replicated",
    "local/jobs/jobset",
    "local/slurm",
    "figures",
    "histories",
    "ui",
)
DOCUMENTED_FILES = (
    "katib/cli/editing.py",
    "katib/cli/get.py",
    "katib/cli/jsonpath.py",
    "katib/cli/plot.py",
    "katib/cli/selecting.py",
    "katib/cluster/template_warnings.py",
    "katib/cluster/webhooks/experiments.py",
    "katib/controllers/trial/jobs.py",
    "katib/local/containers/failures.py",
    "katib/local/findings.py",
    "katib/local/jobs/images.py",
    "katib/local/jobs/selection.py",
    "katib/integrations/hydra.py",
    "katib/integrations/ray.py",
    "katib/rest/status_server.py",
    "katib/rpc/trainer_status.py",
    "katib/sdk/homes.py",
    "katib/sklearn.py",
    "katib/tuning/ask_queues.py",
    "katib/tuning/asking.py",
    "katib/tuning/batch_scripts.py",
    "katib/tuning/companions.py",
    "katib/tuning/drafting.py",
    "katib/tuning/editing.py",
    "katib/tuning/ended_trials.py",
    "katib/tuning/job_files.py",
    "katib/tuning/offered_templates.py",
    "katib/tuning/submission.py",
    "katib/tuning/sweeps.py",
    "suggestion_services/auto/auto.py",
    "suggestion_services/enas/enas.py",
)
RAISERS = {"FieldError", "SpawnError", "error", "invalid", "refuse", "require", "spelled"}

ORIGIN = re.compile(r"[a-z]+(-[a-z]+)*")


def origins_in(path: Path) -> set[str]:
    """Return the origin that is written out in every call that makes an error: the last argument in kebab case."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    found = set()
    for call in calls:
        if (call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")) in RAISERS:
            texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            found.update([text for text in texts if ORIGIN.fullmatch(text)][-1:])
    return found


def raised() -> set[str]:
    files = [path for room in DOCUMENTED_ROOMS for path in (ROOT / "katib" / room).rglob("*.py")]
    files += [ROOT / file for file in DOCUMENTED_FILES]
    return set().union(*map(origins_in, files))


def documented() -> list[str]:
    return re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)


def test_every_origin_is_explained() -> None:
    assert raised() - set(documented()) == set()


def test_every_explanation_is_of_an_origin() -> None:
    assert set(documented()) - raised() == set()


def test_every_origin_is_explained_once() -> None:
    assert [origin for origin, count in Counter(documented()).items() if count > 1] == []


def test_every_rule_of_katib_is_explained() -> None:
    """V37 is about the inside of a Job; what runs Jobs explains it."""
    rules = {int(number) for number in re.findall(r"\bV(\d+)\b", PAGE.read_text())}

    assert set(range(1, 59)) - rules == {37}
