"""Problems with known optima, searches that try them, and the comparison: what `benchmarks.quality` is made of.

Nothing here imports Katib except `own`, so that libraries can be measured from an environment where Katib is not.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy is imported: one core for each search
