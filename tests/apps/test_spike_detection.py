from collections import Counter

import pytest

from tailrace.apps.spike_detection import Signal, expected, readings, spike_detection
from tests.apps.running import first, on_workers, results_of


@on_workers
@pytest.mark.parametrize("window", [10, 1000])
def test_every_reading_gets_its_signal(workers: int, seed: int, window: int) -> None:
    records = first(readings(seed, devices=20, distinct=2000), 2000)
    results = results_of(spike_detection, records, workers, seed, window=window)
    assert Counter(results) == Counter(expected(records, window))
    spikes = sum(signal.spike for signal in results)
    assert 0 < spikes < len(records) / 10


def test_a_spike_is_more_than_three_percent_above_the_average() -> None:
    lines = ["0,7,20.000", "1,7,20.000", "2,7,20.900", "3,7,21.600"]
    results = results_of(spike_detection, lines, 1, 0)
    assert sorted(results) == [
        Signal(n, 7, spike) for n, spike in enumerate([False, False, False, True])
    ]
