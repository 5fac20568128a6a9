"""Serialization of a tuned function for the trial processes: one file per function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import cloudpickle

from katib.errors import CallError, one_line
from katib.model.files.whole_files import write_whole
from katib.sdk.search import Parameter


@dataclass(frozen=True, slots=True)
class Payload:
    """The input of a trial process besides its assignments.

    Attributes:
        function: The function to call.
        parameters: Its search space.
        constants: Arguments that are the same in every trial.
        objectives: Names of a returned number, or of a tuple of several.
    """

    function: Callable[..., Any]
    parameters: Mapping[str, Parameter]
    constants: Mapping[str, Any]
    objectives: Sequence[str]

    def words(self, text_of: Callable[[str], str]) -> list[str]:
        """Return the words of a command line with the value of each parameter."""
        return [f"{name}={text_of(name)}" for name in self.parameters]

    def arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of one trial from such words, with the types of the search space.

        Words of absent parameters are missing, and so are their arguments.
        """
        arguments = dict(self.constants)
        rest = list(words)
        for name, parameter in self.parameters.items():
            if rest and rest[0].startswith(f"{name}="):
                arguments[name] = parameter.value(rest.pop(0).removeprefix(f"{name}="))
        if rest:
            raise ValueError(f"{rest[0]} is not an argument of the function")
        return arguments

    def pickled(self) -> bytes:
        """Return the serialized payload.

        Raises:
            CallError: The function refers to objects that cannot be copied.
        """
        # Copied parts of the main module share one namespace, which belongs to a function of that module when loaded.
        of_main = FunctionType(_nothing.__code__, vars(sys.modules["__main__"]))
        try:
            return b"".join(map(cloudpickle.dumps, (list(sys.path), (self, of_main))))
        except Exception as error:  # noqa: BLE001 - a foreign type fails with whatever it likes
            cause = f"{_name_of(self.function)} cannot be sent to its trials: {one_line(error)}"
            raise CallError(f"{cause}; make locks, open files and connections inside of it") from None

    @staticmethod
    def save(path: Path, pickled: bytes) -> None:
        """Replace the payload of a file."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, pickled)

    @classmethod
    def load(cls, path: Path) -> tuple[Payload, dict[str, Any]]:
        """Read a payload of this user, and the names of its main module: unpickling runs code."""
        with path.open("rb") as file:
            # The modules of the function must be importable before it is read.
            sys.path += [entry for entry in cloudpickle.load(file) if entry not in sys.path]
            found = cloudpickle.load(file)
        payload, of_main = found if isinstance(found, tuple) else (found, None)  # alone until version 0.2
        names = {} if of_main is None else {k: v for k, v in of_main.__globals__.items() if not k.startswith("__")}
        for one in (payload.function, *payload.constants.values()):
            for named in (one, type(one)):
                if isinstance(named, FunctionType | type) and named.__module__ == "__main__":
                    names.setdefault(named.__qualname__, named)
        return payload, names


def _nothing() -> None:
    """Do nothing."""


def check_defaults(function: Callable[..., Any], parameters: Mapping[str, Any]) -> None:
    """Check that a function which takes its parameters by name can be called without the conditional ones.

    Args:
        function: One that `takes_mapping` accepts.
        parameters: All its arguments by name, `Parameter` or not.

    Raises:
        CallError: It cannot be called.
    """
    conditional = [name for name, value in parameters.items() if isinstance(value, Parameter) and value.condition]
    if not conditional or takes_mapping(function, parameters):
        return
    signature = inspect.signature(function)
    always = {name: value for name, value in parameters.items() if name not in conditional}
    try:
        signature.bind(**always)
    except TypeError:
        called = _name_of(function)
        required = {name for name, one in signature.parameters.items() if one.default is inspect.Parameter.empty}
        lacking = ", ".join(name for name in conditional if name in required)
        raise CallError(
            f"{called}{signature} needs a default for {lacking}: trials without a value do not pass one"
        ) from None


def takes_mapping(function: Callable[..., Any], names: Mapping[str, Any]) -> bool:
    """Whether a function takes one mapping of all parameters rather than a keyword for each.

    Raises:
        CallError: It can be called neither way.
    """
    called = _name_of(function)
    if not callable(function):
        raise CallError(f"{function!r} is not a function; a program is tuned by `katib tune`")
    if inspect.iscoroutinefunction(function):
        wrapped = f"lambda **arguments: asyncio.run({called}(**arguments))"
        raise CallError(f"{called} is a coroutine function, which nothing awaits; pass {wrapped}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise CallError(f"{called} does not say which arguments it takes; wrap it in a function that does") from None
    try:
        signature.bind(**names)
    except TypeError:
        try:
            signature.bind({})
        except TypeError:
            wanted = ", ".join(names)
            raise CallError(f"{called}{signature} must take {wanted} by name, or one mapping of them") from None
        return True
    return False


def _name_of(function: object) -> str:
    return getattr(function, "__name__", "the function")
