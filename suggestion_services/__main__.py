"""`python -m suggestion_services`."""

import gc
import os
import signal
import sys

# The first process of a container is deaf to signals without a handler, and what follows takes a moment to import.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

gc.disable()  # an import makes no garbage
from suggestion_services.server import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    sys.exit(main())
