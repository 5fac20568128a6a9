"""Objects found and sorted by facts that a store keeps beside them: an ability that not every store has.

A store keeps facts in the same transaction as the object and learns from its owner how to derive them. It answers a
search from them at a cost of what the answer is long. `search_in` gives the same answer from the objects themselves,
in one pass that holds no more of them than the answer has.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from katib.engine.runtime.objects import Kind, Object
from katib.errors import InvalidError, invalid


class Facts(NamedTuple):
    """What is known of an object without reading it.

    Attributes:
        scope: The objects that are searched together, such as those of one owner. No two kinds share a scope.
        state: What it may be chosen by.
        name: Its name.
        cost: The smaller the better; infinity where there is none.
        brevity: Minus the seconds that it took, so that the longest comes first; 0 where that is not known.
    """

    scope: str
    state: str
    name: str
    cost: float = math.inf
    brevity: float = 0.0


@dataclass(frozen=True, slots=True)
class FactsOf:
    """How a store derives facts.

    Attributes:
        version: Raise it whenever a function changes: the facts of all objects are then derived again.
        kinds: A function for each kind that can be searched. It is pure, fast, and fails for no object.
    """

    version: int
    kinds: Mapping[Kind, Callable[[Object], Facts]]

    def __call__(self, obj: Object) -> Facts | None:
        """Return the facts of an object; None when its kind has none."""
        derive = self.kinds.get(Kind.of(obj))
        return None if derive is None else derive(obj)


NO_FACTS = FactsOf(0, {})
"""Of a store that is never searched."""


class Order(StrEnum):
    """What comes first; what is equal is in order of creation."""

    CREATION = "creation"
    NAME = "name"
    COST = "cost"
    BREVITY = "brevity"


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for.

    Attributes:
        kind: Which kind.
        scope: Which of its scopes.
        states: Only objects in one of these states; empty: in any.
        order: What comes first.
        limit: At most so many.
        after: The cursor of the answer to go on from; empty: from the beginning.
    """

    kind: Kind
    scope: str
    states: frozenset[str] = frozenset()
    order: Order = Order.CREATION
    limit: int = 500
    after: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """Part of an answer.

    Attributes:
        items: The objects; those of a long part may be read when they are looked at, one at a time.
        cursor: Where to go on; empty when there are no more. It stays good while objects come, change and go.
        total: How many there are on all parts.
    """

    items: Sequence[Object]
    cursor: str
    total: int


@runtime_checkable
class SearchableStore(Protocol):
    """An object store that may keep facts. Thread-safe."""

    def search(self, query: Query) -> Found | None:
        """Return what is found; None when the store keeps no facts of this kind.

        Raises:
            InvalidError: The cursor is none of this order.
            UnavailableError: The store cannot be reached.
        """


class Place(NamedTuple):
    """Where an object stands in an order."""

    key: str | float
    age: str | int

    @classmethod
    def parse(cls, cursor: str, order: Order) -> Place:
        """Read a cursor.

        Raises:
            InvalidError: It is none of this order.
        """
        key, _, age = cursor.partition(",")
        if age and (order is Order.NAME or (order is Order.CREATION and not key)):
            return cls(key, age)
        try:
            return cls(float(key if age and order is not Order.CREATION else "none"), age)
        except ValueError as error:
            raise foreign_cursor(cursor) from error

    def __str__(self) -> str:
        return f"{self.key},{self.age}"


def foreign_cursor(cursor: str) -> InvalidError:
    """Return the error for a cursor that is none of a listing."""
    return invalid("cursor", f'"{cursor}" is none of this list', "start without one", "cursor")


def search_in(objects: Iterable[tuple[str, Object]], facts_of: FactsOf, query: Query) -> Found:
    """Return what a search finds among objects that come in any order, each with its age.

    Args:
        objects: Objects of the kind, each with a text that sorts them in order of creation.
        facts_of: Derives their facts.
        query: What is looked for.

    Raises:
        InvalidError: The cursor is none of this order.
    """
    after = Place.parse(query.after, query.order) if query.after else None
    total = 0

    def places() -> Iterable[tuple[Place, Object]]:
        nonlocal total
        for age, obj in objects:
            facts = facts_of(obj)
            if facts is None or facts.scope != query.scope or (query.states and facts.state not in query.states):
                continue
            total += 1
            place = Place("" if query.order is Order.CREATION else getattr(facts, query.order), age)
            if after is None or place > after:
                yield place, obj

    found = heapq.nsmallest(query.limit + 1, places(), key=lambda pair: pair[0])
    items, more = found[: query.limit], len(found) > query.limit
    return Found(tuple(obj for _, obj in items), str(items[-1][0]) if more else "", total)
