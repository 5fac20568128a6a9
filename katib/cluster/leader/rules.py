"""Keeps the rules about changes in the definition of Experiments, on clusters whose API server knows such rules.

They cannot stand in the manifests: a kubectl or an API server before Kubernetes 1.25 refuses a definition with them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from katib.api.types import GROUP, VERSION
from katib.api.validation.update import OBJECT_RULES, SPEC_RULES, Rule
from katib.errors import ConflictError, NotFoundError
from katib.runtime.objects import Key, Kind, Object, ObjectStore

DEFINITION = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
EXPERIMENTS = Key("", f"experiments.{GROUP}")

PERIOD_SECONDS = 30.0
"""How long a definition that was applied again, which drops the rules, may go without them."""

_RULES = "x-kubernetes-validations"

_log = logging.getLogger(__name__)


def with_rules(definition: Object) -> list[dict[str, Any]] | None:
    """Return the versions of a definition with our rules; None when they are there, or cannot be.

    Rules of others stay. A version without a schema of its own, as Katib's definition has it, can hold none.
    """
    versions = (definition.get("spec") or {}).get("versions") or []
    changed = [_ruled(version) if version.get("name") == VERSION else version for version in versions]
    return changed if changed != versions else None


def _ruled(version: Mapping[str, Any]) -> dict[str, Any]:
    root = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    spec = (root.get("properties") or {}).get("spec")
    if not spec or not spec.get("properties"):
        return dict(version)
    spec = {**spec, _RULES: _joined(spec, SPEC_RULES)}
    root = {**root, _RULES: _joined(root, OBJECT_RULES), "properties": {**root["properties"], "spec": spec}}
    return {**version, "schema": {**version["schema"], "openAPIV3Schema": root}}


def _joined(schema: Mapping[str, Any], ours: Sequence[Rule]) -> list[Mapping[str, Any]]:
    known = {rule["rule"] for rule in ours}
    return [*(rule for rule in schema.get(_RULES) or () if rule.get("rule") not in known), *ours]


def keep_rules(store: ObjectStore) -> None:
    """Put the rules into the definition where they are missing.

    Raises:
        KatibError: The definition cannot be read or written.
    """
    try:
        definition = store.get(DEFINITION, EXPERIMENTS)
        versions = with_rules(definition)
        if versions is None or "deletionTimestamp" in definition["metadata"]:
            return
        store.patch(definition, {"spec": {"versions": versions}})
    except (NotFoundError, ConflictError):
        return  # there is nothing to keep, or the next look sees another writer's change
    _log.info("The definition of Experiments holds the rules about changes", extra={"object": EXPERIMENTS.name})
