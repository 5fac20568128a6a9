"""Representations of objects: whole, metadata only, or as rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from katib.doors.kube_api.columns import NAME, PrinterColumn
from katib.doors.kube_api.resources import ServedResource
from katib.engine.runtime.objects import Object
from katib.engine.stores.semantics import encode

Json = dict[str, Any]

_META = "meta.k8s.io/v1"
_TABLE: Json = {"kind": "Table", "apiVersion": _META}


@dataclass(frozen=True, slots=True)
class Representation:
    """Representation requested by a client.

    Attributes:
        name: Empty for whole objects, `Table` or `PartialObjectMetadata`.
        included: Part of the object in a row of a table: `None`, `Metadata` or `Object`.
    """

    name: str = ""
    included: str = "Metadata"

    def one(self, resource: ServedResource, obj: Object, now: datetime, *, headings: bool = True) -> Object:
        """Return one object in this form; `headings` adds those of a table, which a watch sends once."""
        if self.name == "Table":
            metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            columns, rows = _headings(resource) if headings else None, [self._row(resource, obj, now)]
            return {**_TABLE, "metadata": metadata, "columnDefinitions": columns, "rows": rows}
        return _metadata_of(obj) if self.name else obj

    def shape(self, resource: ServedResource, now: datetime) -> Callable[[Object], Object] | None:
        """Return the conversion of an object into an element of a list; None if that is the object itself."""
        if self.name == "Table":
            return lambda obj: self._row(resource, obj, now)
        return _metadata_of if self.name else None

    def many(self, resource: ServedResource, elements: Iterable[str], metadata: Json) -> str:
        """Return the JSON text of a list in this form, given the texts of its elements."""
        if self.name == "Table":
            head, name = {**_TABLE, "metadata": metadata, "columnDefinitions": _headings(resource)}, "rows"
        else:
            kind, api_version = f"{resource.kind.kind}List", resource.kind.api_version
            if self.name:
                kind, api_version = "PartialObjectMetadataList", _META
            head, name = {"kind": kind, "apiVersion": api_version, "metadata": metadata}, "items"
        return f'{encode(head)[:-1]},"{name}":[{",".join(elements)}]}}'

    def _row(self, resource: ServedResource, obj: Object, now: datetime) -> Json:
        row: Json = {"cells": [column.cell(obj, now) for column in _columns(resource)]}
        if self.included != "None":
            row["object"] = obj if self.included == "Object" else _metadata_of(obj)
        return row


WHOLE = Representation()


def form_of(accept: str, included: str) -> Representation:
    """Return the first supported form of an Accept header; whole objects by default.

    Args:
        accept: Such as `application/json;as=Table;v=v1;g=meta.k8s.io,application/json`.
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
            return Representation(wanted, included or "Metadata")
    return WHOLE


def _metadata_of(obj: Object) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}


@cache
def _columns(resource: ServedResource) -> Sequence[PrinterColumn]:
    has_name = any(column.is_name for column in resource.columns)
    return resource.columns if has_name else (NAME, *resource.columns)


def _headings(resource: ServedResource) -> Sequence[Json]:
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
