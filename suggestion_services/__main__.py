"""`python -m suggestion_services`."""

import gc
import os
import signal
import sys

# PID 1 of a container ignores signals without a handler, and the imports below take a moment.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

gc.disable()  # imports create no garbage
from suggestion_services.server import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    sys.exit(main())
