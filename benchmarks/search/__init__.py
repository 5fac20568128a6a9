"""Problems with known optima, searches on them, and their comparison: the parts of `benchmarks.quality`.

Only `own` imports Katib, so that libraries can be measured from an environment without Katib.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy is imported: one core for each search
