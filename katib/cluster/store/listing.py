"""Lists of the API server, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from katib.cluster.client import Connection
from katib.cluster.store import objects
from katib.runtime.objects import Kind, Object, ObjectList

METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accepts a list of objects of any kind that have nothing but metadata."""


def list_pages(
    connection: Connection,
    path: str,
    kind: Kind,
    query: Mapping[str, str],
    page_size: int | None = None,
    *,
    accept: str = "",
) -> Iterator[ObjectList]:
    """Yield the pages of a list, at least one; none of them is held while the next one is fetched.

    Args:
        connection: To the API server.
        path: Of the list.
        kind: Of its objects.
        query: Selectors.
        page_size: How many objects a page has; None: all.
        accept: The form of the answer, if not whole objects.

    Raises:
        ExpiredError: The server does not know the revision of the first page any more.
    """
    following = {} if page_size is None else {"limit": str(page_size)}
    while True:
        page, rest = _page(connection, path, kind, {**query, **following}, accept)
        yield page
        del page
        if not rest:
            return
        following["continue"] = rest


def _page(
    connection: Connection, path: str, kind: Kind, query: Mapping[str, str], accept: str
) -> tuple[ObjectList, str]:
    """Return one page, and the token that asks for the next one; empty on the last."""
    answer = connection.request("GET", path, query=query, accept=accept)
    metadata = answer.get("metadata") or {}
    items: list[Object] = [objects.shown(item, kind) for item in answer.get("items") or ()]
    return ObjectList(tuple(items), metadata.get("resourceVersion", "")), metadata.get("continue", "")
