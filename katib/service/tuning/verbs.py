"""Verbs as data: a request to the tuning service is a struct that also says how it travels.

A verb is declared once, as a subclass of `Verb`. Its fields are the arguments of a method in Python, the parameters and
the body of a route in REST; its docstring describes both. From the declaration come the method (`Method`), the request
of the HTTP client and the answer that it reads, the route and its description. A service implements `call`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from string import Formatter
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    overload,
)

from msgspec import Struct, UnsetType, convert, structs

from katib.model.types import Resource

A = TypeVar("A")
P = ParamSpec("P")
Json = dict[str, Any]

DOCUMENT = "document"
"""Field whose text is the body of a request."""

Place = str
"""Part of a request: `path`, `query`, `header` or `body`."""


class Way(Struct, frozen=True, eq=False):
    """A path below `/api/v1` at which a verb is answered.

    Attributes:
        name: Name of the operation in the description.
        path: With `{field}` for each field that is part of it.
        fixed: Values of fields that this path stands for.
    """

    name: str
    path: str
    fixed: Mapping[str, Any] = {}


class Rest(Struct, frozen=True, kw_only=True):
    """The form of a verb in REST.

    Attributes:
        ways: Its paths; a client takes the first one that fits the request.
        body: Name of its body in the description; empty: all fields that are not in the path are in the query.
        headers: Header by field.
        status: Status of an answer; an answer of None has 204.
        holds: Key of an answer that is not an object by itself.
        answer: Name of such an answer in the description.
        is_quick: Whether it waits for nothing but other writes, on one machine.
        has_limit: Whether a client waits only so long for the answer.
    """

    method: str
    ways: tuple[Way, ...]
    body: str = ""
    headers: Mapping[str, str] = {}
    status: int = 200
    holds: str = ""
    answer: str = ""
    may_change: bool = True
    is_quick: bool = False
    has_limit: bool = True


class Verb(Struct, Generic[A], frozen=True, rename="camel", omit_defaults=True):
    """A request; `A` is its answer."""

    rest: ClassVar[Rest]
    verb: ClassVar[str] = ""
    """Name of its method."""


class Caller(Protocol):
    """Answers requests."""

    def call(self, request: Verb[A]) -> A:
        """Return the answer to a request."""


class Method(Generic[P, A]):
    """A verb as a method of a service, with the fields of its struct as arguments."""

    def __init__(self, make: Callable[P, Verb[A]]) -> None:
        self._make = make

    @property
    def kind(self) -> type[Verb[A]]:
        return self._make  # type: ignore[return-value]  # the class, seen as its constructor

    def __set_name__(self, _owner: type, name: str) -> None:
        self.kind.verb = name
        self.__doc__ = self.kind.__doc__

    if TYPE_CHECKING:

        @overload
        def __get__(self, service: None, owner: type, /) -> Self: ...
        @overload
        def __get__(self, service: Caller, owner: type, /) -> Callable[P, A]: ...

    def __get__(self, service: Caller | None, _owner: type, /) -> Self | Callable[P, A]:
        if service is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> A:
            return service.call(self._make(*args, **kwargs))

        return method


class Field(NamedTuple):
    """A field of a verb as it travels.

    Attributes:
        wire: Name in the request.
        place: Part of the request.
        type: Its type, with limits.
        required: Whether it has no default.
    """

    name: str
    wire: str
    place: Place
    type: Any
    required: bool
    default: Any


@cache
def fields_of(verb: type[Verb[Any]], way: Way) -> tuple[Field, ...]:
    """Return the fields of a verb on one of its paths, without those that the path stands for."""
    return tuple(
        Field(field.name, _wire(verb, field), _place(verb, way, field.name), field.type, field.required, field.default)
        for field in structs.fields(verb)
        if field.name not in way.fixed
    )


def _wire(verb: type[Verb[Any]], field: structs.FieldInfo) -> str:
    return verb.rest.headers.get(field.name, field.encode_name)


@cache
def _names_in(path: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in Formatter().parse(path) if name)


def _place(verb: type[Verb[Any]], way: Way, name: str) -> Place:
    if name in _names_in(way.path):
        return "path"
    if name in verb.rest.headers:
        return "header"
    is_body = name == DOCUMENT if verb.rest.body == DOCUMENT else bool(verb.rest.body)
    return "body" if is_body else "query"


def way_of(request: Verb[Any]) -> Way:
    """Return the path that a client takes for a request."""
    for way in request.rest.ways:
        if all(getattr(request, name) == value for name, value in way.fixed.items()):
            return way
    raise AssertionError(f"no path fits {request}")


@cache
def answer_of(verb: type[Verb[Any]]) -> Any:
    """Return the type of a verb's answer, without None."""
    (answer,) = get_args(verb.__orig_bases__[0])  # type: ignore[attr-defined]  # of every generic class
    return without_none(answer)


def without_none(kind: Any) -> Any:
    """Return a type without None and UNSET; a union of several others stays."""
    if get_origin(kind) is Annotated or not get_args(kind):
        return kind
    others = [one for one in get_args(kind) if one not in (type(None), UnsetType)]
    return others[0] if len(others) == 1 and len(others) < len(get_args(kind)) else kind


def objects_in(kind: Any) -> type[Resource] | None:
    """Return the kind of object that an answer is, or that it is a list of; None for any other answer."""
    one = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return one if isinstance(one, type) and issubclass(one, Resource) else None


def read_answer(verb: type[Verb[A]], body: Any) -> A:
    kind = answer_of(verb)
    found: Any = body[verb.rest.holds] if verb.rest.holds and body is not None else body
    if found is None:
        return None  # type: ignore[return-value]  # the answer of a verb that may have none
    if (objects := objects_in(kind)) is not None:
        return objects.read(found) if kind is objects else tuple(map(objects.read, found))  # type: ignore[return-value]
    return convert(found, kind)  # type: ignore[no-any-return]


def plain(verb: type[Verb[Any]], answer: Any) -> Any:
    if isinstance(answer, Resource):
        return answer.encode()
    if objects_in(answer_of(verb)) is not None:
        answer = [one.encode() for one in answer]
    return {verb.rest.holds: answer} if verb.rest.holds else answer


def given(request: Verb[Any], way: Way, place: Place) -> Iterator[tuple[Field, Any]]:
    """Yield the fields of a request that travel in a place, but those that are absent or have their defaults."""
    for field in fields_of(type(request), way):
        value = getattr(request, field.name)
        if field.place == place and (field.required or value != field.default):
            yield field, value
