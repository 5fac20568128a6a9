"""The function of a tuned run on its way to the trial processes: one file per function."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from katib.sdk.search import Parameter


@dataclass(frozen=True, slots=True)
class Payload:
    """What a trial process needs besides its assignments.

    Attributes:
        function: The function to call.
        parameters: Its search space.
        constants: Arguments that are the same in every trial.
        objective: Name that a bare number returned by the function is reported under.
    """

    function: Callable[..., Any]
    parameters: Mapping[str, Parameter]
    constants: Mapping[str, Any]
    objective: str

    def words(self, text_of: Callable[[str], str]) -> list[str]:
        """Return the words of a command line that say which value each parameter has."""
        return [f"{name}={text_of(name)}" for name in self.parameters]

    def arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of one trial from such words, with the types of the search space."""
        texts = {name: word.removeprefix(f"{name}=") for name, word in zip(self.parameters, words, strict=True)}
        return {**self.constants, **{name: self.parameters[name].value(text) for name, text in texts.items()}}

    def save(self, path: Path) -> None:
        """Write the payload in place of an older one."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(cloudpickle.dumps(list(sys.path)) + cloudpickle.dumps(self))
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> Payload:
        """Read a payload that this user wrote: unpickling runs code."""
        with path.open("rb") as file:
            # Modules that the function came from must be found before it is read.
            sys.path += [entry for entry in cloudpickle.load(file) if entry not in sys.path]
            payload: Payload = cloudpickle.load(file)
        return payload


def takes_mapping(function: Callable[..., Any], names: Mapping[str, Any]) -> bool:
    """Tell whether a function wants one mapping of all parameters rather than a keyword for each.

    Raises:
        TypeError: It can be called neither way.
    """
    called = getattr(function, "__name__", "the function")
    try:
        signature = inspect.signature(function)
    except ValueError:
        raise TypeError(f"{called} does not say which arguments it takes; wrap it in a function that does") from None
    try:
        signature.bind(**names)
    except TypeError:
        try:
            signature.bind({})
        except TypeError:
            wanted = ", ".join(names)
            raise TypeError(f"{called}{signature} must take {wanted} by name, or one mapping of them") from None
        return True
    return False
