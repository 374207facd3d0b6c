"""How many seeds and examples tests have: `make test SEEDS=2000` for more of all of them.

`SEEDS` is the number of simulated jobs; all else is in proportion.
"""

import os

SEEDS = int(os.environ.get("SEEDS", "1200"))


def seeds(of_2000: int) -> int:
    """How many a test has that has so many where there are 2,000 simulated jobs."""
    return max(of_2000 * SEEDS // 2000, 1)
