"""When records are due, the same for all contestants: evenly, or at random as independent users do.

Even distances flatter whoever learns to expect the next record; real arrivals are more like a
Poisson process, whose distances nobody can expect. Every latency benchmark measures both.
"""

from tailrace.connectors.generate import Constant, Pace, Poisson

EVEN, POISSON = "even", "poisson"
PACINGS = (EVEN, POISSON)


def pace_of(pacing: str, rate_per_s: float, seed: int = 0) -> Pace:
    """A pace for our generator: `Generate(..., pace=pace_of("poisson", 10_000))`.

    For pipelines written by hand, `pace.offsets_ns(index, sources, 0)` gives the due times of the
    records of one of several sources, in nanoseconds from the start, for ever. Equal arguments give
    equal times.
    """
    if pacing not in PACINGS:
        raise ValueError(f"pacing is {pacing!r}; it must be one of {PACINGS}")
    return Poisson(rate_per_s, seed) if pacing == POISSON else Constant(rate_per_s)
