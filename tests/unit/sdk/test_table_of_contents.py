"""What `import katib` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("first", ["TuneError", "TuneResult", "callbacks", "open", "plots", "report", "search", "tune"])
def test_every_name_is_what_it_says_whichever_is_asked_for_first(first: str) -> None:
    code = (
        f"import katib as k, types; k.{first}\n"
        "assert callable(k.tune) and callable(k.report)\n"
        "assert isinstance(k.search, types.ModuleType) and isinstance(k.callbacks, types.ModuleType)\n"
        "assert isinstance(k.plots, types.ModuleType)\n"
        "assert issubclass(k.TuneError, Exception) and isinstance(k.TuneResult, type)"
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
