"""Counted pairs in two halves, as if each record had been put into one of them at random.

Tables that were made of one half are judged by the other: by the records that they were made of
all tables look good, also where keys have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailrace.routing.pairs import PairCounts


def halves(pairs: Sequence[PairCounts], seed: int = 0) -> tuple[list[PairCounts], list[PairCounts]]:
    """Both halves; the same seed gives the same. Of each pair what is sure counts.

    Counts that stand for more records than were seen are taken as they are: of a sample the halves
    are more alike than they should be.

    >>> one, other = halves([PairCounts("a", "b", {("x", "y"): 10.0, ("x", "z"): 1.0}, 20.0)])
    >>> [one[0].counts.get(pair, 0) + other[0].counts.get(pair, 0) for pair in [("x", "y")]]
    [10.0]
    >>> one[0].total + other[0].total
    20.0
    """
    chance = np.random.default_rng(seed)
    found: tuple[list[PairCounts], list[PairCounts]] = ([], [])
    for one in pairs:
        sure = one.at_least()
        counts = np.array(list(sure.values()), np.float64)
        first = np.minimum(chance.binomial(np.rint(counts).astype(np.int64), 0.5), counts)
        rest = max(one.total - float(counts.sum()), 0.0) / 2
        for half, some in zip(found, (first, counts - first), strict=True):
            kept = {pair: n for pair, n in zip(sure, some.tolist(), strict=True) if n > 0}
            half.append(PairCounts(one.source, one.target, kept, sum(kept.values()) + rest))
    return found
