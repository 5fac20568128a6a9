"""Mapping from tags of event files to metrics.

For a metric `train/accuracy`, whose last part is `accuracy` and whose leading part is `train`:

- The tag `train/accuracy` matches in any directory: users of SummaryWriter write it.
- So does the tag that the SummaryWriters of PyTorch and tensorboardX make of a metric's name: they replace spaces and
  other characters by `_`, so that `train acc` becomes `train_acc`.
- The tag `accuracy` matches in a directory `train` or `.../train`: users of TensorFlow and Keras write it. A metric
  without leading part is found in any directory.
- As in Katib, a tag that only starts with `accuracy` matches too, and so does a directory whose text ends with `train`
  in the middle of a name. TensorFlow 1 changes a duplicate name to `accuracy_1`. These are loose matches, and they
  count
  only while no exact one is known: `accuracy_top5` is never mixed with `accuracy`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class TagMatch(NamedTuple):
    """The metrics that match a tag."""

    tag: bytes
    exact: tuple[str, ...] = ()
    loose: tuple[str, ...] = ()


UNWANTED = TagMatch(b"")

_NOT_WRITTEN = re.compile(r"[^-/\w.]")
"""Characters that SummaryWriters replace in a tag."""


class TagRules:
    """The rules for one trial, shared by all of its event files. Not thread-safe."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(dict.fromkeys(names))
        self._renamed = {name: _NOT_WRITTEN.sub("_", name).lstrip("/") for name in self._names}
        self.exact: set[str] = set()

    def match(self, tag: bytes, directory: str) -> TagMatch:
        """Return the metrics that match a tag in a file of this directory, and remember the exact ones.

        A tag that is exact for one metric may be loose for another, as `loss_scale` is for `loss`.
        """
        text = tag.decode(errors="replace")
        exact = tuple(name for name in self._names if _is_exact(name, text, directory) or self._is_renamed(name, text))
        self.exact.update(exact)
        loose = tuple(name for name in self._names if name not in exact and _is_loose(name, text, directory))
        match = TagMatch(tag, exact, loose)
        return match if exact or loose else UNWANTED

    def _is_renamed(self, name: str, tag: str) -> bool:
        return tag == self._renamed[name] and tag not in self._names


def _is_exact(name: str, tag: str, directory: str) -> bool:
    leading, _, last = name.rpartition("/")
    return tag == name or (tag == last and f"/{directory}".endswith(f"/{leading}" if leading else ""))


def _is_loose(name: str, tag: str, directory: str) -> bool:
    leading, _, last = name.rpartition("/")
    return bool(last) and tag.startswith(last) and directory.endswith(leading)
