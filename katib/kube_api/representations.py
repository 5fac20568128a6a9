"""The forms in which objects are returned: whole, their metadata alone, or as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from katib.kube_api.columns import NAME, Column
from katib.kube_api.resources import Resource
from katib.runtime.objects import Object

Json = dict[str, Any]

_META = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Form:
    """How a client wants objects.

    Attributes:
        name: Empty for whole objects, `Table` or `PartialObjectMetadata`.
        included: What a row of a table has of its object: `None`, `Metadata` or `Object`.
    """

    name: str = ""
    included: str = "Metadata"

    def one(self, resource: Resource, obj: Object, now: datetime, *, headings: bool = True) -> Object:
        """Return one object in this form; `headings` adds those of a table, which a watch sends once."""
        if self.name == "Table":
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return _table(resource, [obj], metadata, now, self.included, headings=headings)
        return _metadata_of(obj) if self.name else obj

    def many(self, resource: Resource, items: Iterable[Object], metadata: Json, now: datetime) -> Json:
        """Return a list of objects in this form."""
        if self.name == "Table":
            return _table(resource, items, metadata, now, self.included, headings=True)
        kind, api_version = f"{resource.kind.kind}List", resource.kind.api_version
        if self.name:
            kind, api_version, items = "PartialObjectMetadataList", _META, map(_metadata_of, items)
        return {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": list(items)}


WHOLE = Form()


def form_of(accept: str, included: str) -> Form:
    """Return the first form of an Accept header that is known; whole objects where none is named.

    Args:
        accept: As `application/json;as=Table;v=v1;g=meta.k8s.io,application/json`.
        included: The parameter `includeObject`.
    """
    for choice in accept.split(","):
        media_type, *parameters = [part.strip() for part in choice.split(";")]
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media_type not in ("application/json", "*/*", "application/*"):
            continue
        wanted = given.get("as", "").removesuffix("List")
        if not wanted:
            return WHOLE
        if wanted in ("Table", "PartialObjectMetadata") and given.get("v") == "v1":
            return Form(wanted, included or "Metadata")
    return WHOLE


def _metadata_of(obj: Object) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}


def _table(
    resource: Resource, items: Iterable[Object], metadata: Json, now: datetime, included: str, *, headings: bool
) -> Json:
    columns = _columns(resource)
    rows = []
    for obj in items:
        row: Json = {"cells": [column.cell(obj, now) for column in columns]}
        if included != "None":
            row["object"] = obj if included == "Object" else _metadata_of(obj)
        rows.append(row)
    table: Json = {"kind": "Table", "apiVersion": _META, "metadata": metadata}
    return {**table, "columnDefinitions": _headings(resource) if headings else None, "rows": rows}


def _columns(resource: Resource) -> Sequence[Column]:
    has_name = any(column.is_name for column in resource.columns)
    return resource.columns if has_name else (NAME, *resource.columns)


def _headings(resource: Resource) -> Sequence[Json]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.is_name else "",
            "description": "",
            "priority": int(column.is_wide),
        }
        for column in _columns(resource)
    ]
