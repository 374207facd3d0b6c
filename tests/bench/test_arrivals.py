"""Arrivals are the same for all contestants."""

from __future__ import annotations

from itertools import islice, pairwise
from statistics import mean, pstdev

import pytest

from harness.arrivals import EVEN, POISSON, pace_of


def test_poisson_arrivals_follow_from_the_seed() -> None:
    offsets = [list(islice(pace_of(POISSON, 1000, 3).offsets_ns(0, 2, 0), 50)) for _ in range(2)]
    assert offsets[0] == offsets[1]
    assert offsets[0] != list(islice(pace_of(POISSON, 1000, 4).offsets_ns(0, 2, 0), 50))


@pytest.mark.parametrize(("pacing", "spread"), [(EVEN, 0.0), (POISSON, 1.0)])
def test_arrivals_have_the_rate_and_the_spread_of_their_pacing(pacing: str, spread: float) -> None:
    offsets = islice(pace_of(pacing, 1000).offsets_ns(0, 1, 0), 20_000)
    gaps = [after - before for before, after in pairwise(offsets)]
    assert mean(gaps) == pytest.approx(1e6, rel=0.05)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(spread, abs=0.05)


def test_another_pacing_is_refused() -> None:
    with pytest.raises(ValueError, match="'odd'"):
        pace_of("odd", 1)
