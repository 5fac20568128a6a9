"""`python -m suggestion_services`."""

import sys

from suggestion_services.base.server import main

if __name__ == "__main__":
    sys.exit(main())
