"""Filtering and sorting of the list of experiments: a query in, rows out. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import eq, ne
from typing import Any
from urllib.parse import urlencode

from katib.doors.ui.search import ORDERS, Term, terms_of
from katib.doors.ui.views import Summary
from katib.errors import invalid
from katib.figures.trials import number_of

Order = Callable[[Summary], Any]

SIZE = 50
"""Rows per page."""

SEARCHED = ("name", "namespace", "state", "algorithm", "metric")
TERMS = ("trials<", "best<", *(f"{name}=" for name in (*SEARCHED, "tag")))
"""Beginnings of comparisons that the search field offers."""

SORTS: dict[str, tuple[str, Order]] = {
    "name": ("Name", lambda row: row["name"]),
    "namespace": ("Namespace", lambda row: row["namespace"]),
    "state": ("State", lambda row: row["state"]),
    "progress": ("Trials", lambda row: row["done"] / (row["limit"] or 1)),
    "best": ("Best", lambda row: number_of(row["best"]["value"])),
    "algorithm": ("Algorithm", lambda row: row["algorithm"]),
    "active": ("Active", lambda row: row["active"]),
    "age": ("Age", lambda row: row["created"]),
}
"""Title and key of each column."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A user's query of the list.

    Attributes:
        text: A search in the language of `search`; its words are parts of the name, the namespace, the state, the
            algorithm, the metric, a tag or the notes.
        states: Only experiments in one of these; empty: in any.
        namespaces: Only experiments of these namespaces; empty: of all.
        tags: Only experiments with all of these.
        sort: Column to sort by; empty: the newest first.
        descending: Whether the largest comes first.
        page: Page number, from 1.
    """

    text: str = ""
    states: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sort: str = ""
    descending: bool = False
    page: int = 1

    def address(self, **changes: Any) -> str:
        """Return the query part of an address, with some changes."""
        query = replace(self, **changes)
        plain = {"text": query.text, "sort": query.sort, "order": "down" if query.descending else ""}
        if query.page != 1:
            plain["page"] = str(query.page)
        pairs = [(key, value) for key, value in plain.items() if value]
        pairs += [("state", state) for state in query.states]
        pairs += [("namespace", namespace) for namespace in query.namespaces]
        pairs += [("tag", tag) for tag in query.tags]
        return urlencode(pairs)


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of the list.

    Attributes:
        query: The query, with the number of an existing page.
        rows: Rows of this page.
        matching: Number of matching experiments.
        total: Number of all experiments.
        pages: Number of pages, one at least.
        states: The existing states, with the number of experiments in each.
        namespaces: The existing namespaces.
        tags: The existing tags, the most frequent first.
    """

    query: ListQuery
    rows: tuple[Summary, ...]
    matching: int
    total: int
    pages: int
    states: tuple[tuple[str, int], ...]
    namespaces: tuple[str, ...]
    tags: tuple[str, ...] = ()

    def tag_address(self, tag: str) -> str:
        """Return the query with a tag added, or removed if it is active."""
        held = self.query.tags
        return self.query.address(
            tags=tuple(one for one in held if one != tag) if tag in held else (*held, tag), page=1
        )

    def sort_address(self, column: str) -> str:
        """Return the query sorted by a column, reversed if it is sorted by it now."""
        turned = self.query.sort == column and not self.query.descending
        return self.query.address(sort=column, descending=turned, page=1)


def list_page(rows: Sequence[Summary], query: ListQuery) -> ListPage:
    """Return a page of the list; the last one if the requested one does not exist.

    Args:
        rows: All experiments, oldest first.
        query: The query.

    Raises:
        InvalidError: The sort column does not exist.
    """
    found = _ordered([row for row in rows if _passes(row, query)], query)
    pages = max(1, -(-len(found) // SIZE))
    page = min(max(1, query.page), pages)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    return ListPage(
        query=replace(query, page=page),
        rows=tuple(found[(page - 1) * SIZE : page * SIZE]),
        matching=len(found),
        total=len(rows),
        pages=pages,
        states=tuple(sorted(counts.items())),
        namespaces=tuple(sorted({row["namespace"] for row in rows})),
        tags=tuple(tag for tag, _ in Counter(tag for row in rows for tag in row["tags"]).most_common()),
    )


def _passes(row: Summary, query: ListQuery) -> bool:
    return (
        (not query.states or row["state"] in query.states)
        and (not query.namespaces or row["namespace"] in query.namespaces)
        and set(query.tags) <= set(row["tags"])
        and all(_holds(row, term) for term in terms_of(query.text))
    )


def _holds(row: Summary, term: Term) -> bool:
    texts = {"tag": row["tags"], **{name: [row[name]] for name in SEARCHED}}.get(term.name.casefold())
    if texts is not None and term.sign in ("=", "!="):
        return (term.sign == "=") is any(text.casefold() in term.choices for text in texts)
    number = {"trials": float(row["done"]), "best": number_of(row["best"]["value"])}.get(term.name.casefold())
    value = number_of(term.value)
    if number is not None and not math.isnan(number + value):
        return bool({**ORDERS, "=": eq, "!=": ne}[term.sign](number, value))
    return any(term.text in word.casefold() for word in (*(row[name] for name in SEARCHED), row["notes"], *row["tags"]))


def _ordered(rows: list[Summary], query: ListQuery) -> list[Summary]:
    """Return rows in order: equal ones newest first, those without a value last."""
    newest_first = rows[::-1]
    if not query.sort:
        return newest_first
    if query.sort not in SORTS:
        raise invalid("sort", f"there is no column {query.sort!r}", f"use {', '.join(SORTS)}", "table-sort")
    _, key = SORTS[query.sort]
    without = [row for row in newest_first if key(row) != key(row)]  # NaN differs from itself
    with_value = [row for row in newest_first if key(row) == key(row)]
    return sorted(with_value, key=key, reverse=query.descending) + without
