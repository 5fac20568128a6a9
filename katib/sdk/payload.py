"""The function of a tuned run on its way to the trial processes: one file per function."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
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

    def arguments(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments of one trial, with the types of the search space."""
        return {**self.constants, **{name: self.parameters[name].value(text) for name, text in texts.items()}}

    def save(self, directory: Path) -> Path:
        """Write the payload; the same function and space give the same file."""
        data = cloudpickle.dumps(list(sys.path)) + cloudpickle.dumps(self)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = directory / f"{hashlib.sha256(data).hexdigest()[:16]}.pickle"
        if not path.exists():
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_bytes(data)
            temporary.replace(path)
        return path

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
    signature = inspect.signature(function)
    try:
        signature.bind(**names)
    except TypeError:
        try:
            signature.bind({})
        except TypeError:
            wanted = ", ".join(names)
            called = getattr(function, "__name__", "the function")
            raise TypeError(f"{called}{signature} must take {wanted} by name, or one mapping of them") from None
        return True
    return False
