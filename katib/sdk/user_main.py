"""The main module of processes that a tuned function starts, such as those of a pool with `spawn` or `forkserver`.

`multiprocessing` imports the main module of its parent in such processes. For a trial that would be ours, so it names
this one instead (`as_main`), which has the names of the function's own program.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from katib.sdk.payload import Payload

_FILE = "KATIB_FUNCTION_FILE"


def as_main(file: Path) -> Payload:
    """Load the payload of a file; the main module of this process becomes that of the function's program."""
    payload, names = Payload.load(file)
    main = sys.modules["__main__"]
    vars(main).update(names)
    main.__spec__ = find_spec(__name__)
    os.environ[_FILE] = str(file)
    return payload


if __name__ == "__mp_main__":
    globals().update(Payload.load(Path(os.environ[_FILE]))[1])
