"""Kinds of objects in command arguments, in all forms that kubectl accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import click

_WORDS: Final = {
    "Experiment": ("experiment", "experiments", "exp"),
    "Trial": ("trial", "trials"),
    "Suggestion": ("suggestion", "suggestions"),
    "Pod": ("pod", "pods", "po"),
}
_KINDS: Final = {word: kind for kind, words in _WORDS.items() for word in words}
_GROUP = ".kubeflow.org"
LISTED = "experiments, trials, suggestions or pods"


class Asked(NamedTuple):
    """Objects named by a command: a kind, and names; without names, all of that kind."""

    kind: str
    names: tuple[str, ...]


def kind_of(word: str) -> str | None:
    """Return the kind of a word such as `exp` or `experiments.kubeflow.org`; None if it is not a kind."""
    plain, group, version = word.lower().partition(_GROUP)
    return _KINDS.get(plain.removesuffix(".v1beta1") if group and not version else word.lower())


def split_name(text: str) -> tuple[str, str] | None:
    """Return kind and name of `exp/demo`, or of `a/demo`, which may be the title of a study; None without a slash.

    Raises:
        click.UsageError: The name is missing.
    """
    word, slash, name = text.partition("/")
    if not slash:
        return None
    if not name:
        raise _refused(f'"{text}" is not KIND/NAME; write it as experiment/my-experiment, with {LISTED}')
    kind = kind_of(word)
    return ("Experiment", text) if kind is None else (kind, name)


def asked_for(words: Sequence[str]) -> list[Asked]:
    """Return the objects named after `get`: a kind, kinds with commas, a kind and names, or KIND/NAME each time.

    A single name is that of an experiment, and no word at all means experiments.

    Raises:
        click.UsageError: The words have another form.
    """
    if not words:
        return [Asked("Experiment", ())]
    if any("/" in word for word in words):
        pairs = [split_name(word) for word in words]
        named = [pair for pair in pairs if pair is not None]
        if len(named) < len(words):
            raise _refused(f"give a kind and names, or KIND/NAME each time, not both: {' '.join(words)}")
        kinds = dict.fromkeys(kind for kind, _ in named)
        return [Asked(kind, tuple(name for other, name in named if other == kind)) for kind in kinds]
    found = [kind_of(word) for word in words[0].split(",")]
    kinds = dict.fromkeys(kind for kind in found if kind is not None)
    if None not in found and (len(found) == 1 or len(words) == 1):
        return [Asked(kind, tuple(words[1:])) for kind in kinds]
    if len(words) == 1 and "," not in words[0]:
        return [Asked("Experiment", tuple(words))]
    raise _refused(f'"{words[0]}" is not a kind; use {LISTED}')


def names_of(words: Sequence[str], *kinds: str) -> list[str]:
    """Return the names given in any form of kubectl: `demo`, `experiment demo`, `exp/demo experiments/other`.

    Raises:
        click.UsageError: One is of another kind.
    """
    first = kind_of(words[0]) if len(words) > 1 and "/" not in words[1] else None
    named = [(first, word) if first else split_name(word) or (None, word) for word in words[1 if first else 0 :]]
    for kind, name in named:
        if kind is not None and kind not in kinds:
            takes = " or ".join(other.lower() for other in kinds)
            raise _refused(f"{kind.lower()}/{name} is not of a kind that this command takes; name its {takes}")
    return [name for _, name in named]


def _refused(text: str) -> click.UsageError:
    return click.UsageError(text, click.get_current_context(silent=True))
