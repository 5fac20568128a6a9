"""Persistent volume claims mapped to folders on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from katib.errors import invalid
from katib.model.loading import FileText
from katib.model.wording import either, shown

MAPPED_TYPE = "Directory"
"""The `type` of the hostPath in place of a claim. The program may have the mount path built in."""


def with_claims(file: FileText, folders: Mapping[str, str]) -> FileText:
    """Return a file with folders in place of these claims.

    Args:
        folders: Absolute paths by the name of the claim.

    Raises:
        InvalidError: No volume of the file has such a claim.
    """
    if not folders:
        return file
    found: dict[str, None] = {}
    documents = [replace(one, data=_replaced(one.data, folders, found)) for one in file.documents]
    for name in folders.keys() - found:
        remedy = f"choose from {either(list(found))}" if found else "leave --claim out"
        raise invalid(f"--claim {name}", f"no volume has the claim {shown(name)}", remedy, "claim-unknown")
    return FileText.of(documents, file.source)


def _replaced(value: Any, folders: Mapping[str, str], found: dict[str, None]) -> Any:
    """Return a value with folders in place of claims, and collect its claims."""
    if isinstance(value, list):
        return [_replaced(one, folders, found) for one in value]
    if not isinstance(value, dict):
        return value
    claim = value.get("persistentVolumeClaim")
    name = claim.get("claimName") if isinstance(claim, dict) else None
    if isinstance(name, str):
        found[name] = None
        if name in folders:
            others = {key: one for key, one in value.items() if key != "persistentVolumeClaim"}
            return {**others, "hostPath": {"path": folders[name], "type": MAPPED_TYPE}}
    return {key: _replaced(one, folders, found) for key, one in value.items()}
