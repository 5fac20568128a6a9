"""What `import katib` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_every_name_is_what_it_says_whichever_is_asked_for_first() -> None:
    """In a process each that has imported what we build on, and nothing of ours."""
    code = (
        "import gc; gc.disable()\n"
        "import os, types, cloudpickle, grpc, msgspec, numpy, pydantic, re2, sqlalchemy, yaml\n"
        "names = ('TuneError', 'TuneResult', 'callbacks', 'open', 'plots', 'report', 'search', 'tune')\n"
        "first = next((name for name in names if not os.fork()), None)\n"
        "if first is None:\n"
        "    raise SystemExit(any([os.wait()[1] for _ in names]))\n"
        "import katib as k; getattr(k, first)\n"
        "assert callable(k.tune) and callable(k.report), first\n"
        "assert isinstance(k.search, types.ModuleType) and isinstance(k.callbacks, types.ModuleType), first\n"
        "assert isinstance(k.plots, types.ModuleType), first\n"
        "assert issubclass(k.TuneError, Exception) and isinstance(k.TuneResult, type), first\n"
        "os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    import katib
    import katib.sdk

    for module in (katib, katib.sdk):
        with pytest.raises(AttributeError, match="has no attribute 'tunes'"):
            module.tunes  # noqa: B018 - reading it is the test


def test_what_is_offered_is_listed_before_it_is_used() -> None:
    code = "import katib, katib.sdk; print(dir(katib), dir(katib.sdk))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "'open', 'plots', 'report', 'search', 'tune'" in done.stdout
