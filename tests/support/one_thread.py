"""A plugin of pytest: one thread for linear algebra, set before other plugins import numpy, which reads it then.

Tests run in several processes, and trials in more: libraries that take all cores each slow all down.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
