"""Tests of all that is here."""

import os

# Tests run in several processes, and trials in more: libraries of linear algebra that take all cores each slow all
# down. They look once, when numpy is imported: a plugin of pytest does it, after `-p tests.support.side_by_side`. So
# none of their threads is there when that forks.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
