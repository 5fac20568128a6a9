"""Search and sorting by facts that a store keeps beside its objects: an optional ability.

A store keeps facts in the same transaction as the object; its owner defines how to derive them. A search costs in
proportion to its result. `search_in` gives the same result from the objects themselves, in one pass that holds no more
objects than the result.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from katib.engine.runtime.objects import Kind, Object
from katib.errors import InvalidError, invalid


class ObjectFacts(NamedTuple):
    """Facts about an object, available without decoding it.

    Attributes:
        scope: Scope of a search, such as the objects of one owner. No two kinds share a scope.
        cost: Smaller is better; infinity if it has none.
        brevity: Its negated duration in seconds, so that the longest comes first; 0 if unknown.
    """

    scope: str
    state: str
    name: str
    cost: float = math.inf
    brevity: float = 0.0


@dataclass(frozen=True, slots=True)
class FactsOf:
    """Derivation of facts.

    Attributes:
        version: Increase it when a function changes: the facts of all objects are then derived again.
        kinds: A function for each searchable kind, which returns the facts and the decoded object, or None in place of
            one with fields of the wrong type. It is pure, fast, and never fails.
    """

    version: int
    kinds: Mapping[Kind, Callable[[Object], tuple[ObjectFacts, Any]]]

    def __call__(self, obj: Object) -> ObjectFacts | None:
        """Return the facts of an object; None if its kind has none."""
        derive = self.kinds.get(Kind.of(obj))
        return None if derive is None else derive(obj)[0]


NO_FACTS = FactsOf(0, {})
"""For a store that is never searched."""


class SortOrder(StrEnum):
    """Order of a result; ties are in order of creation."""

    CREATION = "creation"
    NAME = "name"
    COST = "cost"
    BREVITY = "brevity"


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search.

    Attributes:
        states: Restricts the result to these states; empty for any.
        order: Order of the result.
        limit: Maximum size of a page.
        after: Cursor of the previous page; empty for the first one.
    """

    kind: Kind
    scope: str
    states: frozenset[str] = frozenset()
    order: SortOrder = SortOrder.CREATION
    limit: int = 500
    after: str = ""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of a result.

    Attributes:
        items: The objects; those of a long page may be loaded one at a time on access.
        cursor: Cursor of the next page; empty on the last one. It stays valid while objects are added, changed and
            deleted.
    """

    items: Sequence[Object]
    cursor: str
    total: int


@runtime_checkable
class SearchableStore(Protocol):
    """An object store that may keep facts. Thread-safe."""

    def search(self, query: SearchQuery) -> SearchPage | None:
        """Return a page of the result; None if the store keeps no facts of this kind.

        Raises:
            InvalidError: The cursor does not belong to this order.
            UnavailableError: The store cannot be reached.
        """


class SortPosition(NamedTuple):
    """Position of an object in an order."""

    key: str | float
    age: str | int

    @classmethod
    def parse(cls, cursor: str, order: SortOrder) -> SortPosition:
        """Parse a cursor.

        Raises:
            InvalidError: It does not belong to this order.
        """
        key, _, age = cursor.partition(",")
        if age and (order is SortOrder.NAME or (order is SortOrder.CREATION and not key)):
            return cls(key, age)
        try:
            return cls(float(key if age and order is not SortOrder.CREATION else "none"), age)
        except ValueError as error:
            raise foreign_cursor(cursor) from error

    def __str__(self) -> str:
        return f"{self.key},{self.age}"


def foreign_cursor(cursor: str) -> InvalidError:
    """Return the error for a cursor of another list."""
    return invalid("cursor", f'"{cursor}" does not belong to this list', "start without one", "cursor")


def search_in(objects: Iterable[tuple[str, Object]], facts_of: FactsOf, query: SearchQuery) -> SearchPage:
    """Return the result of a search among objects in any order, each with its age.

    Args:
        objects: Objects of the kind, each with a text that sorts them in order of creation.

    Raises:
        InvalidError: The cursor does not belong to this order.
    """
    after = SortPosition.parse(query.after, query.order) if query.after else None
    total = 0

    def places() -> Iterable[tuple[SortPosition, Object]]:
        nonlocal total
        for age, obj in objects:
            facts = facts_of(obj)
            if facts is None or facts.scope != query.scope or (query.states and facts.state not in query.states):
                continue
            total += 1
            place = SortPosition("" if query.order is SortOrder.CREATION else getattr(facts, query.order), age)
            if after is None or place > after:
                yield place, obj

    found = heapq.nsmallest(query.limit + 1, places(), key=lambda pair: pair[0])
    items, more = found[: query.limit], len(found) > query.limit
    return SearchPage(tuple(obj for _, obj in items), str(items[-1][0]) if more else "", total)
