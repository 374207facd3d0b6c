"""What encoding costs."""

import threading

import pytest

from tailrace.planner.codec import measure_codec
from tailrace.planner.yardstick import Yardstick
from tailrace.transport.codec import CodecError

STEADY = Yardstick(1.0, lambda: 1.0)


def test_the_size_is_that_of_the_encoded_records() -> None:
    small = measure_codec([(["x" * 10] * 100,)], STEADY)
    large = measure_codec([(["x" * 1000] * 100,)], STEADY)
    assert 10 <= small.record_bytes < 20
    assert 1000 <= large.record_bytes < 1010


def test_both_ways_take_time() -> None:
    times = measure_codec([([(i, str(i)) for i in range(200)],)], STEADY)
    assert times.encode_ns > 0
    assert times.decode_ns > 0


def test_records_that_cannot_travel_are_refused() -> None:
    with pytest.raises(CodecError):
        measure_codec([([threading.Lock()],)], STEADY)
