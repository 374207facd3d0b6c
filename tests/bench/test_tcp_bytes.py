"""The benchmark of bytes by TCP: both ways carry records, and the ratio is of the two."""

from __future__ import annotations

import pytest

from growth_parts import tcp_bytes
from growth_parts.tcp_bytes import Rate


def test_both_ways_carry_records() -> None:
    pytest.importorskip("zmq")
    for way in (tcp_bytes._tailrace_rate, tcp_bytes._zmq_rate):
        rate = way(100_000, 0.05)
        assert rate.bytes_per_s > 0
        assert rate.cpu_us >= 0


def test_the_ratio_is_the_median_of_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [Rate(one, 1.0) for one in (10.0, 30.0, 60.0)]
    theirs = [Rate(other, 1.0) for other in (10.0, 10.0, 30.0)]
    monkeypatch.setattr(tcp_bytes, "rates", lambda quick: {1000: (ours, theirs)})
    assert tcp_bytes.measure(quick=True) == {"1000": 2.0}
