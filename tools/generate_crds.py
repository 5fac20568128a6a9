"""Generate definitions and trial templates of `manifests/components` from the code (run by `make crds`).

The types are the one source of the schema (`katib.model.types.structural`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from katib.model.types import Experiment, Resource, Suggestion, Trial
from katib.model.types.optimization import OptimizationJob
from katib.model.types.structural import kind_schema
from katib.model.validation.update import OBJECT_RULES, SPEC_RULES

ROOT = Path(__file__).resolve().parent.parent
COMPONENTS = ROOT / "manifests" / "components"
TARGET = COMPONENTS / "crds"
TRAINERS = COMPONENTS / "optimization-jobs"
"""The kind of Kubeflow Trainer, for clusters without Trainer's own definition."""

Json = dict[str, Any]

_LAST_CONDITION = ".status.conditions[-1:]"
_STATE_COLUMNS = [
    {"name": "Type", "type": "string", "jsonPath": f"{_LAST_CONDITION}.type"},
    {"name": "Status", "type": "string", "jsonPath": f"{_LAST_CONDITION}.status"},
]
_REASON_COLUMN = {"name": "Reason", "type": "string", "jsonPath": f"{_LAST_CONDITION}.reason"}
_AGE_COLUMN = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_COUNT_COLUMNS = [
    {"name": "Requested", "type": "string", "jsonPath": ".spec.requests"},
    {"name": "Assigned", "type": "string", "jsonPath": ".status.suggestionCount"},
]

_BEST = ".status.currentOptimalTrial"
_RESULT_COLUMNS = [
    {"name": "Done", "type": "integer", "jsonPath": ".status.trialsCompleted"},
    {"name": "Best", "type": "string", "jsonPath": f"{_BEST}.observation.metrics[0].latest"},
]
_WIDE_COLUMNS = [
    {"name": "Trials", "type": "integer", "jsonPath": ".status.trials", "priority": 1},
    {"name": "Succeeded", "type": "integer", "jsonPath": ".status.trialsSucceeded", "priority": 1},
    {"name": "Best Trial", "type": "string", "jsonPath": f"{_BEST}.bestTrialName", "priority": 1},
]
_VALUE_COLUMN = {"name": "Latest", "type": "string", "jsonPath": ".status.observation.metrics[0].latest", "priority": 1}

KINDS: dict[type[Resource], list[Json]] = {
    Experiment: [*_STATE_COLUMNS, _REASON_COLUMN, *_RESULT_COLUMNS, _AGE_COLUMN, *_WIDE_COLUMNS],
    Suggestion: [*_STATE_COLUMNS, *_COUNT_COLUMNS, _AGE_COLUMN],
    Trial: [*_STATE_COLUMNS, _REASON_COLUMN, _AGE_COLUMN, _VALUE_COLUMN],
}


def main() -> int:
    """Write all files; with `--check` compare instead and return 1 if one is stale."""
    check = "--check" in sys.argv[1:]
    stale = []
    TARGET.mkdir(parents=True, exist_ok=True)
    wanted = {
        TARGET / f"{plural(model)}.yaml": yaml.safe_dump(
            with_rules(definition(model, columns)) if model is Experiment else definition(model, columns),
            sort_keys=False,
            width=120,
        )
        for model, columns in KINDS.items()
    }
    wanted[TRAINERS / "optimizationjobs.yaml"] = yaml.safe_dump(_trainers(), sort_keys=False, width=120)
    wanted[COMPONENTS / "config" / "trial-templates.yaml"] = (
        ROOT / "katib" / "places" / "machine" / "trial-templates.yaml"
    ).read_text()
    for path, text in wanted.items():
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.relative_to(ROOT))
    for name in stale:
        print(f"{name} does not fit the code; run `make crds`")
    return bool(stale)


def plural(model: type[Resource]) -> str:
    return f"{model.__name__.lower()}s"


def definition(model: type[Resource], columns: list[Json]) -> Json:
    """Return the CustomResourceDefinition of a kind."""
    name, (group, version) = model.__name__, model().api_version.split("/")
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural(model)}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": plural(model),
                "singular": name.lower(),
                "categories": ["all", "kubeflow", "katib"],
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": kind_schema(model)},
                }
            ],
        },
    }


def with_rules(experiments: Json) -> Json:
    """Add the rules about changes, which the API server also checks while no webhook answers."""
    (version,) = experiments["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    schema["x-kubernetes-validations"] = [*OBJECT_RULES]
    schema["properties"]["spec"]["x-kubernetes-validations"] = [*SPEC_RULES]
    return experiments


def _trainers() -> Json:
    """Return the definition of OptimizationJob, which has no short names and no columns."""
    found = definition(OptimizationJob, [])
    found["spec"]["names"].pop("categories")
    (version,) = found["spec"]["versions"]
    version.pop("additionalPrinterColumns")
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["required"] = ["objectives", "parameters", "trainJobTemplate"]
    return found


if __name__ == "__main__":
    sys.exit(main())
