"""The yardstick: times count as at one speed, however fast the core was when they were taken."""

import time
from itertools import chain, cycle

from tailrace.planner.codec import measure_codec
from tailrace.planner.station import Stopwatch
from tailrace.planner.yardstick import Yardstick, full_speed_ns, reading_ns


def work() -> None:
    sum(range(20_000))


def test_a_reading_takes_time() -> None:
    assert reading_ns() > 0


def test_full_speed_is_that_of_the_fastest_readings_but_for_stray_ones() -> None:
    readings = chain([1.0], cycle([300.0, 600.0, 600.0]))

    def read() -> float:
        work()
        return next(readings)

    assert full_speed_ns(0.1, read) == 300


def test_on_a_core_of_half_the_speed_a_time_counts_half() -> None:
    assert Yardstick(300.0, lambda: 600.0).factor() == 0.5


def test_a_reading_counts_for_a_while_of_cpu_time_and_then_another_is_taken() -> None:
    readings = iter([300.0, 600.0])
    yardstick = Yardstick(300.0, lambda: next(readings))
    assert [yardstick.factor(), yardstick.factor()] == [1.0, 1.0]
    end_ns = time.thread_time_ns() + 1_000_000
    while time.thread_time_ns() < end_ns:
        pass
    assert yardstick.factor() == 0.5


def test_the_stopwatch_tells_times_at_the_yardsticks_speed() -> None:
    with Stopwatch(Yardstick(1e6, lambda: 1.0)) as watch:
        spent_ns, _ = watch.time(work)
    assert spent_ns > 1e9  # a million times some tens of microseconds


def test_codec_times_are_at_the_yardsticks_speed() -> None:
    records = [([(i, str(i)) for i in range(200)],)]
    times = measure_codec(records, Yardstick(1e6, lambda: 1.0))
    assert times.encode_ns > 1e6
    assert times.decode_ns > 1e6
    assert times.record_bytes == measure_codec(records, Yardstick(1.0, lambda: 1.0)).record_bytes
